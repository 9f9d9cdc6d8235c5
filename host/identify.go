package host

import (
	"context"
	"errors"
	"fmt"

	"rocet/nvme"
)

// identify runs an Identify command: Base 2.1 section 5.1.13.
func (c *Controller) identify(ctx context.Context, cns nvme.CNS, nsid uint32) ([]byte, error) {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminIdentify)
	cmd.SetNSID(nsid)
	cmd.SetIdentify(cns, 0, nvme.CSINVM, 0)
	data := make([]byte, nvme.IdentifySize)
	if _, err := c.Admin(ctx, &cmd, data); err != nil {
		return nil, err
	}
	return data, nil
}

// IdentifyController reads the Identify Controller data structure, CNS 01h.
func (c *Controller) IdentifyController(ctx context.Context) (id nvme.IdentifyController, err error) {
	b, err := c.identify(ctx, nvme.CNSController, 0)
	if err == nil {
		err = id.UnmarshalBinary(b)
	}
	return id, err
}

// IdentifyNamespace reads the Identify Namespace data structure, CNS 00h. That of an inactive namespace is all zeros.
func (c *Controller) IdentifyNamespace(ctx context.Context, nsid uint32) (id nvme.IdentifyNamespace, err error) {
	b, err := c.identify(ctx, nvme.CNSNamespace, nsid)
	if err == nil {
		err = id.UnmarshalBinary(b)
	}
	return id, err
}

// NamespaceIDs reads a namespace's identification descriptors, CNS 03h.
func (c *Controller) NamespaceIDs(ctx context.Context, nsid uint32) (ids nvme.NamespaceIDs, err error) {
	b, err := c.identify(ctx, nvme.CNSNamespaceDescriptors, nsid)
	if err == nil {
		err = ids.UnmarshalBinary(b)
	}
	return ids, err
}

// Namespaces lists the active namespaces, CNS 02h.
func (c *Controller) Namespaces(ctx context.Context) ([]uint32, error) {
	var all []uint32
	for last := uint32(0); ; {
		b, err := c.identify(ctx, nvme.CNSActiveNamespaces, last)
		if err != nil {
			return nil, err
		}
		ids, err := nvme.ParseNSIDList(b)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if id <= last {
				return nil, &ProtocolError{What: fmt.Sprintf("its namespace list has %d after %d", id, last)}
			}
			last = id
		}
		if all = append(all, ids...); len(ids) < nvme.MaxNSIDList {
			return all, nil
		}
	}
}

// Namespace is what I/O needs to know of a namespace.
type Namespace struct {
	NSID      uint32
	BlockSize uint32
	Blocks    uint64
	Identify  nvme.IdentifyNamespace
}

// Bytes is the namespace's size.
func (n *Namespace) Bytes() uint64 { return n.Blocks * uint64(n.BlockSize) }

// Namespace looks at a namespace. It is an error if that is not active, or not usable for plain reads and writes.
func (c *Controller) Namespace(ctx context.Context, nsid uint32) (*Namespace, error) {
	id, err := c.IdentifyNamespace(ctx, nsid)
	if err != nil {
		return nil, fmt.Errorf("host: namespace %d: %w", nsid, err)
	}
	n := &Namespace{NSID: nsid, BlockSize: id.BlockSize(), Blocks: id.NSZE, Identify: id}
	switch {
	case id.NSZE == 0:
		have, err := c.Namespaces(ctx)
		if err != nil {
			return nil, fmt.Errorf("host: namespace %d is not active; the list of those that are: %w", nsid, err)
		}
		return nil, fmt.Errorf("host: namespace %d is not active: this host sees namespaces %v", nsid, have)
	case n.BlockSize == 0:
		return nil, &ProtocolError{What: fmt.Sprintf("namespace %d has a block size of 2^%d bytes", nsid, id.Format().LBADS)}
	case id.Format().MS != 0:
		return nil, fmt.Errorf("host: namespace %d has %d bytes of metadata a block: that is not supported", nsid, id.Format().MS)
	case id.NSZE > 1<<63/uint64(n.BlockSize):
		return nil, &ProtocolError{What: fmt.Sprintf("namespace %d has %d blocks of %d bytes", nsid, id.NSZE, n.BlockSize)}
	case n.BlockSize > c.maxIO:
		return nil, &ProtocolError{What: fmt.Sprintf("namespace %d has blocks of %d bytes, and a command moves at most %d", nsid, n.BlockSize, c.maxIO)}
	}
	return n, nil
}

// Log reads len(b) bytes of a log page from an offset: Base 2.1 section 5.1.12. Both are multiples of 4. The event that
// goes with the page is cleared if clear is set.
func (c *Controller) Log(ctx context.Context, lid nvme.LogID, nsid uint32, offset uint64, b []byte, clear bool) error {
	if len(b)%4 != 0 || offset%4 != 0 {
		return errors.New("host: a log page is read in pieces of 4 bytes")
	}
	for len(b) > 0 {
		n := min(len(b), adminMax)
		var cmd nvme.Command
		cmd.SetOpcode(nvme.AdminGetLogPage)
		cmd.SetNSID(nsid)
		cmd.SetLog(lid, 0, !clear || n < len(b), uint64(n), offset)
		if _, err := c.Admin(ctx, &cmd, b[:n]); err != nil {
			return fmt.Errorf("log page %02xh at %d: %w", uint8(lid), offset, err)
		}
		b = b[n:]
		offset += uint64(n)
	}
	return nil
}

// setQueueCount asks for I/O queues, and returns how many the controller grants: Base 2.1 section 5.1.25.1.5.
func (c *Controller) setQueueCount(ctx context.Context, n int) (int, error) {
	v, err := c.SetFeature(ctx, nvme.FeatureNumberOfQueues, 0, uint32(nvme.MakeQueueCounts(uint32(n), uint32(n))), nil)
	if err != nil {
		return 0, err
	}
	got := nvme.QueueCounts(v)
	return int(min(got.Submission(), got.Completion(), uint32(n))), nil
}

// SetFeature runs Set Features with a value for dword 11, and returns dword 0 of the response.
func (c *Controller) SetFeature(ctx context.Context, id nvme.FeatureID, nsid, value uint32, data []byte) (uint32, error) {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminSetFeatures)
	cmd.SetNSID(nsid)
	cmd.SetCDW(10, uint32(id))
	cmd.SetCDW(11, value)
	cqe, err := c.Admin(ctx, &cmd, data)
	return cqe.DW0(), err
}

// Feature runs Get Features for the current value, dword 0 of the response.
func (c *Controller) Feature(ctx context.Context, id nvme.FeatureID, nsid uint32) (uint32, error) {
	var cmd nvme.Command
	cmd.SetOpcode(nvme.AdminGetFeatures)
	cmd.SetNSID(nsid)
	cmd.SetCDW(10, uint32(id))
	cqe, err := c.Admin(ctx, &cmd, nil)
	return cqe.DW0(), err
}

// Discovery is a whole discovery log.
type Discovery struct {
	GENCTR  uint64
	Entries []nvme.DiscoveryEntry
}

const (
	discoveryTries = 10      // of a log that changes while it is read
	maxDiscovery   = 1 << 16 // entries that are believed
)

// Discover reads the discovery log of a discovery controller: Base 2.1 section 5.1.12.3.1. The log is read again if it
// changed meanwhile.
func (c *Controller) Discover(ctx context.Context) (*Discovery, error) {
	header := func() (h nvme.DiscoveryHeader, err error) {
		b := make([]byte, nvme.DiscoveryHeaderSize)
		if err = c.Log(ctx, nvme.LogDiscovery, 0, 0, b, false); err == nil {
			err = h.UnmarshalBinary(b)
		}
		switch {
		case err != nil:
		case h.RECFMT != 0:
			err = fmt.Errorf("host: the discovery log has record format %d, only 0 is known", h.RECFMT)
		case h.NUMREC > maxDiscovery:
			err = fmt.Errorf("host: the discovery log claims %d entries, at most %d are read", h.NUMREC, maxDiscovery)
		}
		return h, err
	}
	h, err := header()
	if err != nil {
		return nil, err
	}
	for range discoveryTries {
		d := &Discovery{GENCTR: h.GENCTR, Entries: make([]nvme.DiscoveryEntry, 0, min(h.NUMREC, 64))}
		b := make([]byte, nvme.DiscoveryEntrySize)
		for i := range h.NUMREC {
			var e nvme.DiscoveryEntry
			if err = c.Log(ctx, nvme.LogDiscovery, 0, nvme.DiscoveryHeaderSize+i*nvme.DiscoveryEntrySize, b, false); err != nil {
				break
			}
			if err = e.UnmarshalBinary(b); err != nil {
				break
			}
			d.Entries = append(d.Entries, e)
		}
		again, herr := header()
		if herr != nil {
			return nil, herr
		}
		if again.GENCTR == h.GENCTR {
			if err != nil {
				return nil, err
			}
			return d, nil
		}
		h = again // an error may come of a log that has become shorter
	}
	return nil, fmt.Errorf("host: the discovery log changed %d times while it was read", discoveryTries)
}
