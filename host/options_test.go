package host

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"rocet/nvme"
)

func TestParseURL(t *testing.T) {
	const nqn = "nqn.2014-08.org.nvmexpress:uuid:b9af3399-68e7-8042-9597-fdba4fdf71e8"
	for _, test := range []struct {
		url  string
		want Options
	}{
		{"nvme-tcp://10.0.0.1", Options{Transport: TCP, Address: "10.0.0.1", NSID: 1}},
		{"nvme-tcp://10.0.0.1:4421/" + nqn, Options{Transport: TCP, Address: "10.0.0.1", Port: 4421, NQN: nqn, NSID: 1}},
		{"nvme-rdma://[fe80::1%25eth0]:4420/nqn.2026-01.com.example:a?nsid=0x10", Options{Transport: RDMA, Address: "fe80::1%eth0", Port: 4420, NQN: "nqn.2026-01.com.example:a", NSID: 16}},
		{"nvme-tcp://store.example/nqn.2026-01.com.example:a?hdgst&ddgst=true&nsid=2", Options{Transport: TCP, Address: "store.example", NQN: "nqn.2026-01.com.example:a", NSID: 2, HeaderDigest: true, DataDigest: true}},
		{"nvme-tcp://h?kato=5s&timeout=1m&from=10.0.0.2&ddgst=0&hostnqn=nqn.2026-01.com.example:h&hostid=b9af3399-68e7-8042-9597-fdba4fdf71e8",
			Options{Transport: TCP, Address: "h", NSID: 1, KeepAlive: 5 * time.Second, Timeout: time.Minute, From: netip.MustParseAddr("10.0.0.2"),
				HostNQN: "nqn.2026-01.com.example:h", HostID: nvme.UUID{0xb9, 0xaf, 0x33, 0x99, 0x68, 0xe7, 0x80, 0x42, 0x95, 0x97, 0xfd, 0xba, 0x4f, 0xdf, 0x71, 0xe8}}},
	} {
		got, err := ParseURL(test.url)
		if (err != nil) != (test.want.Transport == "") || err == nil && !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, %v\nwant %+v", test.url, got, err, test.want)
		}
	}
	for url, want := range map[string]string{
		"10.0.0.1":                                 "want nvme-tcp://",
		"http://10.0.0.1/":                         "want nvme-tcp://",
		"nvme-tcp:///nqn":                          "no address",
		"nvme-tcp://h:0/":                          "want 1 to 65535",
		"nvme-tcp://h:70000/":                      "want 1 to 65535",
		"nvme-tcp://u@h/":                          "a user",
		"nvme-tcp://h/#x":                          "fragment",
		"nvme-tcp://h/?nsid=0":                     "namespace identifier",
		"nvme-tcp://h/?nsid=4294967295":            "namespace identifier",
		"nvme-tcp://h/?nsid=1&nsid=2":              "2 times",
		"nvme-tcp://h/?hdgst=maybe":                "hdgst=maybe",
		"nvme-tcp://h/?colour=red":                 "not known",
		"nvme-tcp://h/?hostid=12":                  "UUID",
		"nvme-tcp://h/?kato=1ms":                   "100ms to 24h",
		"nvme-rdma://h/?ddgst":                     "leave hdgst and ddgst away",
		"nvme-tcp://h/" + strings.Repeat("n", 224): "at most 223 bytes",
		"nvme-tcp://h/?timeout=-1s":                "negative",
		"nvme-tcp://h/a%00b":                       "NUL",
		"nvme-tcp://h/?from=nowhere":               "from=nowhere",
		"nvme-tcp://h/?hdgst;ddgst":                "semicolon",
		"nvme-tcp://%zz/":                          "URL",
	} {
		if _, err := ParseURL(url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", url, err, want)
		}
	}
}

func TestURL(t *testing.T) {
	for _, url := range []string{"nvme-tcp://10.0.0.1:4420/nqn.2026-01.com.example:a", "nvme-rdma://[::1]:4420/nqn.2026-01.com.example:a", "nvme-tcp://[fe80::1%25eth0]/nqn.2026-01.com.example:a"} {
		o, err := ParseURL(url)
		if err != nil || o.URL() != url {
			t.Errorf("%s comes back as %s (%v)", url, o.URL(), err)
		}
	}
}

func TestIdentity(t *testing.T) {
	const id = "b9af3399-68e7-8042-9597-fdba4fdf71e8"
	o, err := Options{Transport: TCP, Address: "h", HostNQN: nvme.NQNUUIDPrefix + id}.withDefaults()
	if err != nil || o.HostID.String() != id {
		t.Errorf("%v, %v", o.HostID, err)
	}
	a, _ := Options{Transport: TCP, Address: "h", HostNQN: "nqn.2026-01.com.example:a"}.withDefaults()
	b, _ := Options{Transport: TCP, Address: "h", HostNQN: "nqn.2026-01.com.example:b"}.withDefaults()
	again, _ := Options{Transport: TCP, Address: "h", HostNQN: "nqn.2026-01.com.example:a"}.withDefaults()
	if a.HostID == b.HostID || a.HostID != again.HostID || a.HostID.IsZero() {
		t.Errorf("host identifiers %v, %v, %v", a.HostID, b.HostID, again.HostID)
	}
	made, _ := Options{Transport: TCP, Address: "h"}.withDefaults()
	if err := nvme.ValidNQN(made.HostNQN); err != nil || made.HostID.IsZero() {
		t.Errorf("made up: %s (%v), %v", made.HostNQN, err, made.HostID)
	}
	for _, bad := range []Options{
		{Transport: "fc", Address: "h"}, {Transport: TCP}, {Transport: TCP, Address: "h", DataAlign: 32}, {Transport: TCP, Address: "h", MaxR2T: 16},
		{Transport: TCP, Address: "h", IOQueues: 65535}, {Transport: TCP, Address: "h", AdminDepth: 8}, {Transport: TCP, Address: "h", AdminDepth: 4096},
	} {
		if _, err := bad.withDefaults(); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
