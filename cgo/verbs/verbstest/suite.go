// Package verbstest is what every implementation of verbs.Provider must do: the fake's and the libraries' are the same to
// those who use them. The libraries are tested over shmverbs, which moves data between two ends in one process.
package verbstest

import (
	"testing"
)

// Run tests a subject, which open makes anew for each test.
func Run(t *testing.T, open func(testing.TB) Subject) {
	for _, test := range []struct {
		name string
		run  func(*rig)
	}{
		{"devices", testDevices},
		{"objects", testObjects},
		{"connect", testConnect},
		{"reject", testReject},
		{"nobody listens", testNobodyListens},
		{"listener goes", testListenerGoes},
		{"disconnect", testDisconnect},
		{"acknowledgements", testAcknowledgements},
		{"migrate", testMigrate},
		{"descriptors", testDescriptors},
		{"transfers", testTransfers},
		{"chains", testChains},
		{"many ops", testManyOps},
		{"bad requests", testBadRequests},
		{"inline", testInline},
		{"shared receives", testSharedReceives},
		{"windows", testWindows},
		{"errors", testErrors},
		{"flush", testFlush},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&rig{TB: t, Subject: open(t)}) })
	}
}
