// Package targettest drives a target without a network: a fake transport takes
// capsules as Go calls, so that a test reads like a transcript of the protocol,
// and a backend in memory does what the test wants it to.
//
//	h := targettest.New(t, targettest.Options{})
//	sub := h.Subsystem("nqn.2026-01.io.rocet:test")
//	h.Namespace(sub, 1, targettest.NewRAM(4096, 256))
//	a := h.Connect(sub.NQN(), targettest.Host("one"))
//	io := a.IO(1)
//	reply := io.Do(targettest.Write(1, 0, 1), data)
package targettest
