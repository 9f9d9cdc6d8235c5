package target_test

import (
	"testing"
	"time"

	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
	tt "rocet/target/targettest"
)

// What a fuzz input is made of: steps of one byte that chooses the queue and how
// the command is sent, and the 64 bytes of the command. Data comes from the whole
// input, over and over.
const fuzzStep = 1 + nvme.CommandSize

func fuzzSeed(steps ...[]byte) (in []byte) {
	for _, s := range steps {
		in = append(in, s...)
	}
	return in
}

func fuzzCommand(how byte, c nvme.Command) []byte {
	c.SetPSDT(nvme.PSDTSGL)
	return append([]byte{how}, c[:]...)
}

// FuzzCommands throws commands at a fresh, a live admin and a live I/O queue.
// Nothing may crash, each command gets exactly one response, and afterwards no
// command, no buffer and no controller is left.
func FuzzCommands(f *testing.F) {
	const admin, io, fresh, held, lost = 0, 1, 2, 4, 8
	host := tt.Host("fuzz")
	dsm, _ := tt.Deallocate(1, tt.Range(0, 1), tt.Range(5, 300))
	f.Add(fuzzSeed(
		fuzzCommand(io, tt.Write(1, 0, 4)), fuzzCommand(io, tt.Read(1, 0, 4)), fuzzCommand(io|held, tt.Write(1, 0, 4)),
		fuzzCommand(admin, tt.Abort(1, 3)), fuzzCommand(io, dsm), fuzzCommand(io, tt.Flush(nvme.NSIDAll)), fuzzCommand(io, tt.Disconnect())))
	f.Add(fuzzSeed(
		fuzzCommand(admin, tt.Admin(nvme.AdminAER)), fuzzCommand(admin, tt.Identify(nvme.CNSNamespace, 1)),
		fuzzCommand(admin, tt.GetLog(nvme.LogError, 640, 64)), fuzzCommand(admin, tt.SetFeature(nvme.FeatureKeepAliveTimer, 100)),
		fuzzCommand(admin, tt.PropertySet(nvme.RegCC, 0)), fuzzCommand(admin, tt.PropertySet(nvme.RegCC, uint64(tt.EnableCC)))))
	f.Add(fuzzSeed(
		fuzzCommand(fresh, tt.Connect(0, 31, 500)), fuzzCommand(fresh, tt.PropertySet(nvme.RegCC, uint64(tt.EnableCC))),
		fuzzCommand(fresh, tt.Admin(nvme.AdminKeepAlive)), fuzzCommand(fresh|lost, tt.Admin(nvme.AdminAER))))
	f.Add(fuzzSeed(fuzzCommand(fresh, tt.Connect(2, 31, 0)), fuzzCommand(fresh|held, tt.Read(1, 0, 1)), fuzzCommand(admin|lost, tt.Read(1, 0, 1))))
	for _, id := range []nvme.FeatureID{nvme.FeatureTimestamp, nvme.FeatureHostBehavior, nvme.FeatureHostIdentifier, nvme.FeatureNumberOfQueues, nvme.FeatureErrorRecovery} {
		f.Add(fuzzSeed(fuzzCommand(admin, tt.GetFeature(id, nvme.FeatureCurrent, 1)), fuzzCommand(admin, tt.SetFeature(id, 7))))
	}

	h := tt.New(f, tt.Options{NoLog: true, Target: target.Options{
		MDTS: 65536, DuplicateQID: time.Millisecond, DisconnectTimeout: 5 * time.Millisecond, ConnectTimeout: time.Second,
	}})
	s := h.Subsystem(subNQN)
	h.Namespace(s, 1, tt.NewRAM(4096, 256))
	lending, err := tt.NewLendingRAM(h.Pool, 512, 1024)
	if err != nil {
		f.Fatal(err)
	}
	h.Namespace(s, 2, lending)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 24*fuzzStep {
			return
		}
		h.TB = t
		a := h.Connect(subNQN, host)
		conns := []*tt.Conn{a.Admin, a.IO(1), h.Dial(tt.DialOptions{})}
		data := make([]byte, 1<<17)
		for n := 0; len(in) > 0 && n < len(data); {
			n += copy(data[n:], in)
		}
		connect := tt.ConnectData(subNQN, host, nvme.CNTLIDDynamic)
		var pending []*tt.Pending
		for rest := in; len(rest) >= fuzzStep; rest = rest[fuzzStep:] {
			how, cmd := rest[0], nvme.Command(rest[1:fuzzStep])
			c := conns[how&3%3]
			out := data
			if how&3 == fresh {
				out = connect
				if cmd.QID() != 0 {
					out = tt.ConnectData(subNQN, host, a.CNTLID)
				}
			}
			out = out[:min(len(out), int(dataLength(&cmd)))]
			if how&held != 0 {
				pending = append(pending, c.HoldRaw(cmd, out))
			} else {
				pending = append(pending, c.SendRaw(cmd, out))
			}
			if how&lost != 0 {
				c.Drop()
			}
		}
		for _, p := range pending {
			p.Continue()
		}
		for _, c := range conns {
			c.Drop()
		}
		for _, p := range pending {
			p.Wait()
		}
		for i, c := range conns {
			c.WaitReleased()
			if sent, got := c.Sent.Load(), c.Responses.Load(); sent != got {
				t.Errorf("queue %d: %d commands, %d responses", i, sent, got)
			}
		}
		h.Eventually("everything is freed", func() bool { return len(h.Target.Controllers()) == 0 })
		for _, ns := range s.Namespaces() {
			if n := ns.InFlight()[0]; n != 0 {
				t.Errorf("namespace %d has %d commands in flight", ns.NSID(), n)
			}
		}
		g := h.Target.Groups()[0]
		var used memory.Usage
		g.Reactor.Call(func() { used = g.Mem.Usage() })
		if used.UsedBytes != 0 {
			t.Errorf("%d bytes of buffers are in use", used.UsedBytes)
		}
		if n := g.Stats().Queues; n != 0 {
			t.Errorf("%d queues are left", n)
		}
	})
}

// dataLength is what a host would send with a command, so that most get through.
func dataLength(cmd *nvme.Command) uint64 {
	switch cmd.Opcode() {
	case nvme.OpFabrics:
		return nvme.ConnectDataSize
	case nvme.OpDatasetManagement: // which is Set Features on an admin queue
		switch cmd.FID() {
		case nvme.FeatureTimestamp:
			return nvme.TimestampSize
		case nvme.FeatureHostBehavior:
			return nvme.HostBehaviorSize
		}
		if cmd[50]&1 != 0 {
			return 4096
		}
		return uint64(cmd.DSMRanges()) * nvme.DSMRangeSize
	case nvme.OpWrite, nvme.OpCompare:
		if cmd.NSID() == 1 {
			return uint64(cmd.NLB()) * 4096
		}
		return uint64(cmd.NLB()) * 512
	}
	return 0
}
