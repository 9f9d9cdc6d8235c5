//go:build lab

package lab

import "testing"

var (
	overTCP     = fabric{transport: "tcp"}
	withDigests = fabric{transport: "tcp", args: []string{"-g", "-G"}}
)

func TestLabTCPCommands(t *testing.T)      { testCLI(t, overTCP) }
func TestLabTCPVerify(t *testing.T)        { testVerify(t, overTCP) }
func TestLabTCPVerifyDigests(t *testing.T) { testVerify(t, withDigests) }
func TestLabTCPFilesystem(t *testing.T)    { testFilesystem(t, withDigests) }
func TestLabTCPCycles(t *testing.T)        { testCycles(t, overTCP) }
func TestLabTCPSixteenHosts(t *testing.T)  { testSixteenHosts(t, overTCP) }
func TestLabTCPVanish(t *testing.T)        { testVanish(t, overTCP) }
func TestLabTCPRestart(t *testing.T)       { testRestart(t, overTCP) }
func TestLabTCPIdle(t *testing.T)          { testIdle(t, overTCP) }
