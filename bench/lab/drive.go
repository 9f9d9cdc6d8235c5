package main

import (
	"fmt"
	"time"

	"rocet/lab"
)

// drivePoints are measured on a drive instead of null namespaces: behind Rocet's own driver, and behind the kernel's with
// nvmet on it. It is the same drive, which changes hands between them.
var drivePoints = []point{
	{"drive: 4k randread qd1", "randread", "4k", 1},
	{"drive: 4k randread qd32", "randread", "4k", 32},
}

const vfioBind = "scripts/vfio-bind"

// driveConfig is Rocet with one namespace on the drive.
func driveConfig(transport, reactors, serial string) string {
	return fmt.Sprintf(`reactors: {%s}
memory: {size: 64MiB}
metrics: {listen: %q}
listeners: [{transport: %s, address: %s, port: %s}]
subsystems:
  - nqn: %s
    allow_any_host: true
    namespaces:
      - {nsid: 1, backend: {type: nvme, serial: %s, force: true}}
`, reactors, lab.MetricsAddr, transport, lab.Addr0, rocetPort, rocetNQN, serial)
}

// rocetSide is a whole turn of Rocet with the drive: use has it as a block device.
func rocetSide(b *bench, d *lab.Drive, transport, reactors string, use func(string, int)) {
	lab.Run(b, vfioBind, "bind", "--force", d.Address)
	r := lab.StartRocet(b, driveConfig(transport, reactors, d.Serial))
	c := lab.Connect(b, lab.ConnectOptions{Transport: transport, Addr: lab.Addr0, Port: rocetPort, NQN: rocetNQN})
	use(c.Namespace(1), r.Pid())
	c.Disconnect()
	r.Stop()
	lab.Run(b, vfioBind, "kernel", d.Address)
	d.Block()
}

// peerSide is the same of nvmet.
func peerSide(b *bench, d *lab.Drive, transport string, use func(string, int)) {
	n := lab.StartNvmet(b, lab.NvmetConfig{NQN: peerNQN, Transport: transport, Addr: lab.Addr0, Port: peerPort, Backing: []string{d.Block()}})
	c := lab.Connect(b, lab.ConnectOptions{Transport: transport, Addr: lab.Addr0, Port: peerPort, NQN: peerNQN})
	use(c.Namespace(1), 0)
	c.Disconnect()
	n.Stop()
}

// measureDrive measures all points in a turn, since the drive changes hands slowly.
func measureDrive(b *bench, transport, reactors string, rounds int, runtime time.Duration) []result {
	d := lab.Drives(b)[0]
	results := make([]result, len(drivePoints))
	for i, p := range drivePoints {
		results[i].Point = p.name
	}
	for round := range rounds {
		fmt.Printf("drive, round %d of %d ...", round+1, rounds)
		rocetRuns, peerRuns := make([]lab.FioDirection, len(drivePoints)), make([]lab.FioDirection, len(drivePoints))
		used := make([]cpu, len(drivePoints))
		turns := []func(){
			func() {
				rocetSide(b, d, transport, reactors, func(dev string, pid int) {
					for i, p := range drivePoints {
						before := cpuTime(b, pid)
						rocetRuns[i] = runFio(b, p, dev, runtime)
						used[i] = cpuTime(b, pid).sub(before)
					}
				})
			},
			func() {
				peerSide(b, d, transport, func(dev string, _ int) {
					for i, p := range drivePoints {
						peerRuns[i] = runFio(b, p, dev, runtime)
					}
				})
			},
		}
		turns[round%2]()
		turns[1-round%2]()
		for i := range drivePoints {
			fmt.Printf(" rocet %.0f, nvmet %.0f IOPS", rocetRuns[i].IOPS, peerRuns[i].IOPS)
			results[i].add(rocetRuns[i], peerRuns[i], used[i])
		}
		fmt.Println()
	}
	for i := range results {
		results[i].finish()
	}
	return results
}
