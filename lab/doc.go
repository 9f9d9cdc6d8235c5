// Package lab is the harness of the lab suite: the tests that run Rocet against the Linux kernel's own NVMe-oF host,
// over Soft-RoCE and TCP, with emulated drives. This package holds the tools; the tests are its _test.go files with the
// build tag lab, so that a plain `go test ./...` leaves them out.
//
//	make lab                      all of them, in the guest (scripts/lab, one boot)
//	make lab RUN=TestLabKernel    some of them
//	make lab NATIVE=1             on this machine's own kernel, where it has rdma_rxe and the NVMe host; what needs the
//	                              guest's drives or its machine's monitor skips itself
//	scripts/lab shell             the guest by hand: bin/lab.test and bin/rocet are there
//
// # Writing a test
//
// Put it into a file named after its feature (rdma_reset_test.go, vfio_unplug_test.go) that starts with
// `//go:build lab`, and begin its name with TestLab. It runs as root, alone (no t.Parallel: host, target and devices
// are one kernel's), in the checkout's root folder, on two slow processors: a whole second of fio is a few thousand
// I/Os, and a test should take less than ten. Waits are by condition (WaitFor), never by sleeping. What a test makes, it
// removes: helpers that make something take a T and register its removal.
//
//	func TestLabRDMAWrite(t *testing.T) {
//		lab.CheckDmesg(t)      // fails on any warning the kernel logs meanwhile
//		lab.CheckResources(t)  // RDMA resources of the kernel are back where they were when the test ends
//		r := lab.StartRocet(t, lab.MemoryConfig("rdma", lab.Addr0, "64MiB"))
//		c := lab.Connect(t, lab.ConnectOptions{Transport: "rdma", Addr: lab.Addr0, NQN: lab.NQN})
//		lab.Fio(t, lab.FioJob{File: c.Namespace(1), RW: "randwrite", BS: "4k", Size: "8M", Args: []string{"--verify=crc32c"}})
//		before := r.Usage()
//		...
//		c.Disconnect()
//		r.Stop()               // SIGTERM; status 0 is demanded
//	}
//
// # What there is
//
//	lab.go        T, Run, WaitFor, Require: the ground that the rest stands on
//	rocet.go      StartRocet, Stop, Kill, Restart, WaitLog, Usage; configurations
//	metrics.go    Metrics: a scrape, summed by label
//	nvme.go       Connect, Discover, Nvme: nvme-cli and the host's controllers
//	fio.go        Fio: jobs and their figures
//	dmesg.go      CheckDmesg: the kernel's log
//	rdma.go       CheckResources, SetLink, NewRoCE: RDMA devices and their resources
//	drive.go      Drives: the emulated NVMe drives, unplugged, slowed down, stopped
//	qmp.go        Monitor: the machine's monitor, from inside
//	nvmet.go      StartNvmet, NewNullBlk: the kernel's own target, as a peer
package lab
