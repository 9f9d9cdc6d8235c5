//go:build lab

package lab

import "testing"

var overRDMA = fabric{transport: "rdma"}

func TestLabRDMACommands(t *testing.T)     { CheckResources(t); testCLI(t, overRDMA) }
func TestLabRDMAVerify(t *testing.T)       { CheckResources(t); testVerify(t, overRDMA) }
func TestLabRDMAFilesystem(t *testing.T)   { CheckResources(t); testFilesystem(t, overRDMA) }
func TestLabRDMACycles(t *testing.T)       { CheckResources(t); testCycles(t, overRDMA) }
func TestLabRDMASixteenHosts(t *testing.T) { CheckResources(t); testSixteenHosts(t, overRDMA) }
func TestLabRDMAVanish(t *testing.T)       { CheckResources(t); testVanish(t, overRDMA) }
func TestLabRDMARestart(t *testing.T)      { CheckResources(t); testRestart(t, overRDMA) }
func TestLabRDMAIdle(t *testing.T)         { CheckResources(t); testIdle(t, overRDMA) }
func TestLabRDMACounts(t *testing.T)       { CheckResources(t); testCounts(t, overRDMA) }
func TestLabRDMAContents(t *testing.T)     { CheckResources(t); testContents(t, overRDMA) }
func TestLabRDMAStop(t *testing.T)         { CheckResources(t); testStop(t, overRDMA) }
