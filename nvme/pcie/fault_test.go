package pcie

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rocet/memory"
	"rocet/nvme"
	"rocet/nvme/pcie/sim"
)

// onIO makes a hook that wants v done with the I/O commands of an opcode.
func onIO(op nvme.Opcode, v sim.Verdict) sim.Hook {
	return func(qid uint16, cmd *nvme.Command) sim.Verdict {
		if qid != 0 && cmd.Opcode() == op {
			return v
		}
		return sim.Execute
	}
}

// outstanding sends n reads of a page that the drive does not answer.
func (r *rig) outstanding(n int) ([]*request, []memory.Segment) {
	r.t.Helper()
	segs := r.alloc(4096)
	var all []*request
	for i := range n {
		q := r.newRequest(nvme.OpRead, uint64(i), 8, segs)
		q.onEnd = func() {
			if q.status == StatusReset && !r.dev.Quiet() {
				r.t.Error("a command was ended while the drive could still write into its buffer")
			}
		}
		r.send(q)
		all = append(all, q)
	}
	r.pump("the drive to have the commands", func() bool { return r.dev.Held() >= n })
	return all, segs
}

func allEnded(all []*request) func() bool {
	return func() bool {
		for _, q := range all {
			if q.ended == 0 {
				return false
			}
		}
		return true
	}
}

func (r *rig) wantEnded(all []*request, st nvme.Status) {
	r.t.Helper()
	r.pump("the commands to end", allEnded(all))
	for i, q := range all {
		if q.ended != 1 || q.status != st {
			r.t.Errorf("command %d ended %d times, with %v; want %v", i, q.ended, q.status, st)
		}
	}
}

// wantWorking shows that the drive is live and serves.
func (r *rig) wantWorking() {
	r.t.Helper()
	r.pump("the drive to be live", func() bool { return r.drive.State() == Live })
	segs := r.alloc(8192)
	r.roundTrip(2000, segs, 77)
	r.cache.Free(segs)
}

func TestTimeoutIsAborted(t *testing.T) {
	r := newRig(t, sim.Config{}, nil)
	r.dev.SetHook(onIO(nvme.OpRead, sim.Drop))
	all, segs := r.outstanding(3)
	for _, q := range all {
		q.onEnd = nil // the drive itself gives them back
	}
	for range int(DefaultTimeout/TickInterval) - 2 {
		r.q.Tick()
	}
	r.turn()
	if n := r.q.Stats().TimedOut; n != 0 {
		t.Fatalf("%d commands timed out too early", n)
	}
	r.dev.SetHook(nil)
	for range 5 {
		r.q.Tick()
	}
	r.pump("the commands to end", allEnded(all))
	for _, q := range all {
		if q.ended != 1 || q.status != StatusReset {
			t.Errorf("ended %d times with %v", q.ended, q.status)
		}
	}
	if c := r.drive.Counters(); c.Aborts != 3 || c.Resets != 0 {
		t.Errorf("counters %+v", c)
	}
	r.cache.Free(segs)
	r.wantWorking()
}

// A slow operation has more time.
func TestSlowOperationsHaveTime(t *testing.T) {
	r := newRig(t, sim.Config{}, nil)
	r.dev.SetHook(onIO(nvme.OpFlush, sim.Drop))
	q := r.newRequest(nvme.OpFlush, 0, 0, nil)
	r.send(q)
	r.pump("the drive to have the command", func() bool { return r.dev.Held() == 1 })
	r.age(2 * DefaultTimeout)
	if n := r.q.Stats().TimedOut; n != 0 {
		t.Fatalf("a flush timed out after %v", 2*DefaultTimeout)
	}
	r.age(DefaultTimeout)
	r.wantEnded([]*request{q}, StatusReset)
}

// A command that does not even come back from its abort leads to a reset, in which others' commands end too; what comes
// meanwhile waits and is served.
func TestStuckCommandResets(t *testing.T) {
	r := newRig(t, sim.Config{}, nil)
	r.dev.SetHook(onIO(nvme.OpRead, sim.Swallow))
	all, segs := r.outstanding(5)
	r.age(DefaultTimeout)
	r.pump("the aborts", func() bool { return r.drive.Counters().Aborts == 5 })
	r.dev.SetHook(nil)
	r.age(DefaultAbortTimeout)
	r.wantEnded(all, StatusReset)
	if c := r.drive.Counters(); c.Resets != 1 || c.Removals != 0 {
		t.Errorf("counters %+v", c)
	}
	r.wantWorking()
	if n := r.dev.Counts().Enables; n != 2 {
		t.Errorf("the controller was enabled %d times", n)
	}
	r.cache.Free(segs)
}

// Whatever a controller does that shows it is broken ends in a reset.
func TestBrokenController(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(r *rig)
	}{
		{"CSTS.CFS", func(r *rig) { r.dev.Fail() }},
		{"PCI Express error", func(r *rig) { r.dev.PCIError() }},
		{"wrong command identifier", func(r *rig) { r.poke(sim.BadCID) }},
		{"wrong queue identifier", func(r *rig) { r.poke(sim.BadSQID) }},
		{"completion that comes twice", func(r *rig) { r.poke(sim.Twice) }},
		{"admin command that does not come back", func(r *rig) {
			r.dev.SetHook(func(qid uint16, cmd *nvme.Command) sim.Verdict {
				if qid == 0 && cmd.Opcode() == nvme.AdminGetLogPage || qid != 0 && cmd.Opcode() == nvme.OpRead {
					return sim.Swallow
				}
				return sim.Execute
			})
			if _, err := r.drive.SMART(); !errors.Is(err, errAdminTimeout) {
				r.t.Errorf("SMART: %v", err)
			}
			r.dev.SetHook(nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, sim.Config{Vectors: 3}, func(c *Config) { c.AdminTimeout = 200 * time.Millisecond })
			r.dev.SetHook(onIO(nvme.OpRead, sim.Swallow))
			all, segs := r.outstanding(4)
			r.dev.SetHook(nil)
			c.do(r)
			r.wantEnded(all, StatusReset)
			r.pump("the reset", func() bool { return r.drive.Counters().Resets > 0 })
			r.wantWorking()
			if n := r.drive.Counters(); n.Resets != 1 || n.Removals != 0 {
				t.Errorf("counters %+v", n)
			}
			r.cache.Free(segs)
		})
	}
}

// poke makes the drive answer one command in a way that is wrong. The command itself ends in the reset, or with success
// where its own answer was fine.
func (r *rig) poke(v sim.Verdict) {
	r.dev.SetHook(onIO(nvme.OpFlush, v))
	q := r.newRequest(nvme.OpFlush, 0, 0, nil)
	r.send(q)
	r.pump("the answer", func() bool { return q.ended > 0 })
	if want := map[bool]nvme.Status{true: nvme.StatusSuccess, false: StatusReset}[v == sim.Twice]; q.status != want || q.ended != 1 {
		r.t.Errorf("the answered command ended with %v", q.status)
	}
	r.dev.SetHook(nil)
}

// A controller that ignores CC.EN loses the bus instead, and is reset as a function.
func TestControllerThatDoesNotStop(t *testing.T) {
	r := newRig(t, sim.Config{}, nil)
	r.drive.cfg.Hold = time.Minute
	r.dev.SetHook(onIO(nvme.OpRead, sim.Swallow))
	all, segs := r.outstanding(2)
	r.dev.SetHook(nil)
	r.dev.FreezeReady()
	r.dev.PCIError()
	r.wantEnded(all, StatusReset)
	r.wantWorking()
	if c := r.dev.Counts(); c.Resets != 1 {
		t.Errorf("the function was reset %d times", c.Resets)
	}
	r.cache.Free(segs)
}

// If nothing helps the drive is let go, hosts get errors, and it is taken up when it works again.
func TestHopelessController(t *testing.T) {
	r := newRig(t, sim.Config{NoReset: true}, func(c *Config) { c.Hold = 300 * time.Millisecond })
	r.dev.SetHook(onIO(nvme.OpRead, sim.Swallow))
	all, segs := r.outstanding(2)
	r.dev.FreezeReady()
	r.dev.PCIError()
	r.pump("the queue to freeze", func() bool { return r.q.state == queueFrozen })
	// What comes now waits, and is ended when Hold has passed, though the drive is still being stopped.
	late := r.newRequest(nvme.OpRead, 0, 8, segs)
	if r.q.TrySubmit(&late.Request) {
		t.Fatal("a frozen queue took a request")
	}
	r.pump("the wait to end", func() bool { return r.q.TrySubmit(&late.Request) })
	if late.status != StatusGone || late.ended != 1 {
		t.Errorf("the request that waited: %v", late.status)
	}
	r.wantEnded(all, StatusReset)
	r.pump("the drive to be gone", func() bool { return r.drive.State() == Gone })
	if _, err := r.drive.SMART(); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("SMART of a drive that is gone: %v", err)
	}
	r.pump("the event", r.sawEvent(Event{Kind: EventGone}))
	r.dev.SetHook(nil)
	r.dev.Insert()
	r.pump("the event", r.sawEvent(Event{Kind: EventBack}))
	r.wantWorking()
	r.cache.Free(segs)
}

func TestRemovalAndReturn(t *testing.T) {
	for _, asked := range []bool{false, true} {
		r := newRig(t, sim.Config{Vectors: 3}, nil)
		r.dev.SetHook(onIO(nvme.OpRead, sim.Swallow))
		all, segs := r.outstanding(7)
		r.dev.SetHook(nil)
		if asked {
			r.dev.AskBack()
			r.pump("the function to be given back", func() bool { return r.drive.State() == Gone })
			if n := r.dev.Counts().Shutdown; n != 1 {
				t.Errorf("%d shutdowns before the function was given back", n)
			}
		}
		r.dev.Remove()
		r.wantEnded(all, StatusReset)
		r.pump("the event", r.sawEvent(Event{Kind: EventGone}))
		if st := r.do(nvme.OpRead, 0, 8, segs); st != StatusGone {
			t.Errorf("a read of a drive that is gone: %v", st)
		}
		// A queue that is opened meanwhile works once the drive is back, and so does one that is closed.
		second, err := r.drive.OpenQueue(r, true)
		if err != nil {
			t.Fatal(err)
		}
		closed := false
		second.Close(func() { closed = true })
		r.pump("a queue of a drive that is gone to close", func() bool { return closed })
		r.closeQueue()
		r.open()
		r.space.Remap()
		r.dev.Insert()
		r.pump("the event", r.sawEvent(Event{Kind: EventBack}))
		r.wantWorking()
		if c := r.drive.Counters(); c.Removals != 1 || c.Returns != 1 || c.Resets != 0 {
			t.Errorf("counters %+v", c)
		}
		r.cache.Free(segs)
	}
}

// A drive that is given back in good order finishes what it has first, whole: only what comes after is refused.
func TestGivenBackInOrder(t *testing.T) {
	r := newRig(t, sim.Config{MDTS: 1, Vectors: 3}, func(c *Config) { c.Depth = 8 })
	segs := r.alloc(64 * 8192)
	var all []*request
	for i := range 20 {
		q := r.newRequest(nvme.OpWrite, uint64(i)*256, 16, []memory.Segment{segs[0].Slice(0, 8192)})
		if i == 3 {
			q = r.newRequest(nvme.OpWrite, 4096, 64*16, segs) // far more than there are slots for
		}
		if !r.q.TrySubmit(&q.Request) {
			break
		}
		all = append(all, q)
	}
	r.dev.AskBack()
	for r.drive.State() == Live { // the drive has not been told of anything yet
		time.Sleep(time.Millisecond)
	}
	r.pump("the drive to be gone", func() bool { return r.drive.State() == Gone })
	for i, q := range all {
		if q.ended != 1 || !q.status.IsOK() {
			t.Errorf("request %d ended %d times with %v", i, q.ended, q.status)
		}
	}
	if len(all) != 4 {
		t.Errorf("%d requests were taken", len(all))
	}
	r.cache.Free(segs)
}

// With HoldRemoved commands wait for a drive that was pulled.
func TestRemovedDriveIsWaitedFor(t *testing.T) {
	r := newRig(t, sim.Config{}, func(c *Config) { c.HoldRemoved = time.Minute })
	segs := r.alloc(4096)
	r.dev.Remove()
	r.pump("the drive to be gone", func() bool { return r.drive.State() == Gone })
	q := r.newRequest(nvme.OpRead, 0, 8, segs)
	if r.q.TrySubmit(&q.Request) {
		t.Fatal("taken")
	}
	r.dev.Insert()
	r.send(q)
	r.pump("the read", func() bool { return q.ended > 0 })
	if !q.status.IsOK() {
		t.Error(q.status)
	}
	r.cache.Free(segs)
}

// Another drive in the same slot is none of ours.
func TestOtherDriveIsNotTaken(t *testing.T) {
	r := newRig(t, sim.Config{}, nil)
	r.dev.Remove()
	r.pump("the drive to be gone", func() bool { return r.drive.State() == Gone })
	r.dev.Reconfigure(func(c *sim.Config) { c.Serial = "OTHER" })
	r.dev.Insert()
	r.pump("the refusal", func() bool { return strings.Contains(r.logged(), "another drive is in its place") })
	if r.drive.State() != Gone {
		t.Error("it was taken")
	}
	r.dev.Reconfigure(func(c *sim.Config) { c.Serial = "SIM0001" })
	r.wantWorking()
}

// A namespace that has another format after a return serves nothing; with its old format it does again.
func TestReformattedNamespace(t *testing.T) {
	r := newRig(t, sim.Config{}, nil)
	segs := r.alloc(4096)
	r.dev.Reconfigure(func(c *sim.Config) { c.Metadata = 8 })
	r.dev.PCIError()
	r.pump("the event", r.sawEvent(Event{Kind: EventNamespaceChanged, NSID: 1}))
	r.pump("the drive to be live", func() bool { return r.drive.State() == Live })
	if st := r.do(nvme.OpRead, 0, 8, segs); st.Code() != nvme.StatusInvalidNamespace {
		t.Errorf("read: %v", st)
	}
	r.dev.Reconfigure(func(c *sim.Config) { c.Metadata = 0 })
	r.dev.PCIError()
	r.pump("the second reset", func() bool { return r.drive.Counters().Resets == 2 && r.drive.State() == Live })
	r.wantWorking()
	r.cache.Free(segs)
}

// A split request that is half-way when the drive is reset ends once, and its rest is not sent.
func TestResetInTheMiddleOfASplit(t *testing.T) {
	r := newRig(t, sim.Config{MDTS: 1}, func(c *Config) { c.Depth = 4 })
	r.dev.SetHook(onIO(nvme.OpWrite, sim.Swallow))
	segs := r.alloc(20 * 8192)
	q := r.newRequest(nvme.OpWrite, 0, 20*16, segs)
	r.send(q)
	if !r.q.Busy() || r.q.splitting == nil {
		t.Fatal("nothing is being split")
	}
	r.pump("the drive to have the commands", func() bool { return r.dev.Held() == 3 })
	r.dev.SetHook(nil)
	r.dev.PCIError()
	r.wantEnded([]*request{q}, StatusReset)
	r.wantWorking()
	if n := r.dev.Counts().Commands[nvme.OpWrite]; n > 3+1 { // wantWorking writes once
		t.Errorf("the drive got %d writes", n)
	}

	// And one that the drive refuses in the middle.
	var seen atomic.Int32
	r.dev.SetHook(func(qid uint16, cmd *nvme.Command) sim.Verdict {
		if qid != 0 && cmd.Opcode() == nvme.OpWrite && seen.Add(1) == 2 {
			return sim.FailMedia
		}
		return sim.Execute
	})
	if st := r.do(nvme.OpWrite, 0, 20*16, segs); st != nvme.StatusUnrecoveredRead {
		t.Errorf("a split write whose second part fails: %v", st)
	}
	if n := seen.Load(); n > 6 {
		t.Errorf("%d parts were sent though the second failed", n)
	}
	r.dev.SetHook(nil)
	r.cache.Free(segs)
	r.wantWorking()
}

// Closing a queue while its commands are stuck waits for them, and their recovery.
func TestCloseWhileStuck(t *testing.T) {
	r := newRig(t, sim.Config{}, nil)
	r.dev.SetHook(onIO(nvme.OpRead, sim.Swallow))
	all, segs := r.outstanding(2)
	closed := false
	r.q.Close(func() { closed = true })
	for range 20 {
		r.turn()
	}
	if closed {
		t.Fatal("closed with commands outstanding")
	}
	if err := r.drive.Close(); err == nil {
		t.Fatal("a drive with an open queue was closed")
	}
	r.age(DefaultTimeout)
	r.pump("the aborts", func() bool { return r.drive.Counters().Aborts == 2 })
	r.age(DefaultAbortTimeout)
	r.wantEnded(all, StatusReset)
	r.pump("the queue to close", func() bool { return closed })
	r.q = nil
	r.cache.Free(segs)
}

// Close does not wait for a drive that is gone, or for one that does not answer.
func TestCloseOfAGoneDrive(t *testing.T) {
	r := newRig(t, sim.Config{}, nil)
	r.closeQueue()
	r.dev.Remove()
	r.pump("the drive to be gone", func() bool { return r.drive.State() == Gone })
	started := time.Now()
	if err := r.drive.Close(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(started); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
}
