package target_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rocet/memory"
	"rocet/nvme"
	"rocet/target"
	tt "rocet/target/targettest"
)

// Everything at once on two reactors: hosts that write and verify, come and go,
// while namespaces, hosts, listeners, ANA states and sizes change. At the end all
// is back to where it began.
func TestLiveChangesUnderLoad(t *testing.T) {
	h, s, _ := start(t, tt.Options{Reactors: 2, NoLog: true, Target: target.Options{DuplicateQID: time.Second}})
	length := 3 * time.Second
	if testing.Short() {
		length = 500 * time.Millisecond
	}
	stop := make(chan struct{})
	time.AfterFunc(length, func() { close(stop) })
	running := func() bool {
		select {
		case <-stop:
			return false
		default:
			return true
		}
	}
	var wg sync.WaitGroup
	var done, verified atomic.Int64
	// Hosts that stay and verify what they wrote, each in its own blocks.
	for i := range 2 {
		wg.Go(func() {
			a := h.Connect(subNQN, tt.Host(fmt.Sprint("stays", i)))
			io := a.IOOn(1, i)
			data := make([]byte, 4096)
			for n := 0; running(); n++ {
				for j := range data {
					data[j] = byte(n + j + i)
				}
				lba := uint64(i*32 + n%32)
				if r := io.Do(tt.Write(1, lba, 1), data); r.Status != 0 {
					t.Errorf("write: %v", r.Status)
				}
				r := io.Do(tt.Read(1, lba, 1), nil)
				if r.Status != 0 || !bytes.Equal(r.Data, data) {
					t.Errorf("read back: %v", r.Status)
				}
				verified.Add(1)
			}
		})
	}
	// Hosts that come, do anything, and vanish.
	for i := range 2 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for running() {
				host := tt.Host(fmt.Sprint("wild", i))
				admin := h.Dial(tt.DialOptions{Group: rnd.IntN(2)})
				r := admin.Do(tt.Connect(0, 31, uint32(rnd.IntN(2)*1000)), tt.ConnectData(subNQN, host, nvme.CNTLIDDynamic))
				if r.Status != 0 {
					admin.Drop()
					continue
				}
				cntlid := uint16(r.DW0())
				admin.Do(tt.PropertySet(nvme.RegCC, uint64(tt.EnableCC)), nil)
				admin.Do(tt.SetFeature(nvme.FeatureAsyncEventConfig, allNotices), nil)
				conns := []*tt.Conn{admin}
				for q := range uint16(2) {
					c := h.Dial(tt.DialOptions{Group: rnd.IntN(2)})
					c.Do(tt.Connect(q+1, 31, 0), tt.ConnectData(subNQN, host, cntlid))
					conns = append(conns, c)
				}
				var pending []*tt.Pending
				for range 30 {
					c := conns[1+rnd.IntN(2)]
					nsid := uint32(1 + rnd.IntN(4))
					lba, n := uint64(128+rnd.IntN(140)), uint32(1+rnd.IntN(4))
					switch rnd.IntN(8) {
					case 0:
						pending = append(pending, c.Send(tt.Write(nsid, lba, n), make([]byte, n*4096)))
					case 1:
						pending = append(pending, c.Send(tt.Flush(nvme.NSIDAll), nil))
					case 2:
						cmd, data := tt.Deallocate(nsid, tt.Range(lba, n))
						pending = append(pending, c.Send(cmd, data))
					case 3:
						pending = append(pending, admin.Send(tt.Abort(uint16(rnd.IntN(3)), uint16(rnd.IntN(30))), nil))
					case 4:
						pending = append(pending, admin.Send(tt.GetLog([]nvme.LogID{nvme.LogSMART, nvme.LogError, nvme.LogANA, nvme.LogChangedNamespaces}[rnd.IntN(4)], 512, 0), nil))
					case 5:
						pending = append(pending, admin.Send(tt.Admin(nvme.AdminAER), nil))
					default:
						pending = append(pending, c.Send(tt.Read(nsid, lba, n), nil))
					}
				}
				switch rnd.IntN(4) {
				case 0:
					pending = append(pending, admin.Send(tt.PropertySet(nvme.RegCC, 0), nil))
				case 1:
					pending = append(pending, conns[1].Send(tt.Disconnect(), nil))
				}
				rnd.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
				for _, c := range conns {
					c.Drop()
				}
				for _, p := range pending {
					p.Wait()
				}
				for _, c := range conns {
					c.WaitReleased()
				}
				done.Add(1)
			}
		})
	}
	// The administrator.
	wg.Go(func() {
		rnd := rand.New(rand.NewPCG(2, 2))
		for n := 0; running(); n++ {
			nsid := uint32(2 + rnd.IntN(3))
			b := tt.NewRAM(4096, uint64(200+rnd.IntN(80)))
			if _, err := s.AddNamespace(target.NamespaceConfig{NSID: nsid, Backend: b, ANAGroup: uint32(1 + rnd.IntN(2)*6)}); err != nil {
				t.Error(err)
				return
			}
			b.Hold(rnd.IntN(2) == 0)
			time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
			if err := s.ResizeNamespace(nsid, uint64(150+rnd.IntN(150)), true); err != nil {
				t.Error(err)
			}
			if err := s.SetANAState(nil, 7, []nvme.ANAState{nvme.ANAOptimized, nvme.ANAInaccessible}[rnd.IntN(2)]); err != nil {
				t.Error(err)
			}
			switch rnd.IntN(6) {
			case 0:
				s.Disconnect(tt.Host("wild0").NQN)
			case 1:
				s.SetAllowAnyHost(false)
				s.SetAllowAnyHost(true)
				for i := range 2 {
					_ = s.AllowHost(tt.Host(fmt.Sprint("stays", i)).NQN)
				}
			case 2:
				h.Target.RemoveListener(h.AddListener("192.0.2.9", "9", 0))
			case 3:
				for _, ns := range s.Namespaces() {
					ns.Stats()
				}
				h.Target.Controllers()
				h.Target.Groups()[n%2].Stats()
			}
			b.Hold(false)
			if err := s.RemoveNamespace(context.Background(), nsid); err != nil {
				t.Error(err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	// The first SetAllowAnyHost(false) must not hit the hosts that stay.
	for i := range 2 {
		if err := s.AllowHost(tt.Host(fmt.Sprint("stays", i)).NQN); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	t.Logf("%d wild associations, %d blocks verified", done.Load(), verified.Load())
	if done.Load() == 0 || verified.Load() == 0 {
		t.Error("nothing happened")
	}
	h.Eventually("only the hosts that stay are left", func() bool { return len(h.Target.Controllers()) == 2 })
	for _, ns := range s.Namespaces() {
		for g, n := range ns.InFlight() {
			if n != 0 {
				t.Errorf("namespace %d has %d commands in flight on reactor %d", ns.NSID(), n, g)
			}
		}
	}
	for i, g := range h.Target.Groups() {
		var used memory.Usage
		g.Reactor.Call(func() { used = g.Mem.Usage() })
		if used.UsedBytes != 0 {
			t.Errorf("reactor %d still has %d bytes of buffers in use", i, used.UsedBytes)
		}
	}
}
