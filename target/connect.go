package target

import (
	"bytes"
	"errors"
	"time"
	"unicode/utf8"

	"rocet/nvme"
)

// The Connect command: Base 2.1 section 6.3.

// connectError is why a Connect is refused: a status and dword 0 of the response.
type connectError struct {
	status nvme.Status
	dw0    uint32
	why    string
}

func (e *connectError) Error() string { return e.why }

// badField refuses for a field of the command.
func badField(offset uint16, why string) *connectError {
	return &connectError{nvme.StatusConnectInvalidParameters, nvme.ConnectInvalidParameter(offset, false), why}
}

// badData refuses for a field of the Connect data.
func badData(offset uint16, why string) *connectError {
	return &connectError{nvme.StatusConnectInvalidParameters, nvme.ConnectInvalidParameter(offset, true), why}
}

func refuse(st nvme.Status, why string) *connectError { return &connectError{status: st, why: why} }

// errConnectionLost is why a queue is closed that the target did not end.
var errConnectionLost = errors.New("the host or the network ended the connection")

var errPeerGone = errors.New("the connection is down")

// prepareUnconnected is Prepare of a queue that is not live: only Connect is taken.
func (q *Queue) prepareUnconnected(r *Request) nvme.Status {
	if q.state >= queueEnding {
		return nvme.StatusAbortedSQDeletion
	}
	if q.state != queueUnconnected || r.opcode != nvme.OpFabrics || r.Cmd.FCType() != nvme.FabricsConnect {
		return nvme.StatusCommandSequenceError
	}
	r.Dir = nvme.DirHostToController
	r.Length = nvme.ConnectDataSize
	r.act = actControl
	return nvme.StatusSuccess
}

// connect executes Connect.
func (x *control) connect() {
	q := x.q
	var data nvme.ConnectData
	err := data.UnmarshalBinary(x.data())
	if err == nil {
		if x.cmd.QID() == 0 {
			err = x.connectAdmin(&data)
		} else {
			err = x.connectIO(&data)
		}
	}
	if err == nil {
		return
	}
	x.after = func() {
		if q.state == queueConnecting {
			q.state = queueUnconnected
		}
	}
	var ce *connectError
	switch {
	case errors.As(err, &ce):
		x.status, x.result = ce.status, uint64(ce.dw0)
	case errors.Is(err, errPeerGone):
		x.fail(nvme.StatusAbortedSQDeletion)
	default:
		x.fail(nvme.StatusInternalError)
	}
	// A host may try again at wire speed: not each time is worth a line.
	if q.refusals++; q.refusals&(q.refusals-1) != 0 {
		return
	}
	q.target.log.Warn("connect refused", "times", q.refusals, "subsystem", data.SubNQN.String(), "host", data.HostNQN.String(),
		"addr", q.opts.HostAddr, "qid", x.cmd.QID(), "status", x.status.String(), "reason", err)
}

// checkConnect is what both kinds have to fulfil. It returns the names in the data.
func (x *control) checkConnect(data *nvme.ConnectData) (sub string, host HostIdentity, err error) {
	q, cmd := x.q, &x.cmd
	switch depth := q.listener.info.MaxQueueDepth; {
	case cmd.RECFMT() != 0:
		return "", host, refuse(nvme.StatusConnectIncompatibleFormat, "unknown record format")
	case cmd.SQSIZE() == 0:
		return "", host, badField(nvme.ConnectOffsetSQSIZE, "SQSIZE is 0")
	case cmd.SQSIZE() >= depth, q.opts.Depth != 0 && cmd.SQSIZE() >= q.opts.Depth:
		return "", host, badField(nvme.ConnectOffsetSQSIZE, "SQSIZE is larger than the queue that the transport made, or than CAP.MQES")
	case q.opts.QID != QIDUnknown && q.opts.QID != cmd.QID():
		return "", host, badField(nvme.ConnectOffsetQID, "QID is not the one of the transport's connection request")
	}
	sub, ok := parseNQN(&data.SubNQN)
	if !ok {
		return "", host, badData(nvme.ConnectDataOffsetSUBNQN, "SUBNQN is empty or not NUL-terminated UTF-8")
	}
	host.NQN, ok = parseNQN(&data.HostNQN)
	if !ok {
		return "", host, badData(nvme.ConnectDataOffsetHOSTNQN, "HOSTNQN is empty or not NUL-terminated UTF-8")
	}
	host.ID = data.HostID
	return sub, host, nil
}

// parseNQN takes any name of the right size: hosts have names that nvme.ValidNQN
// does not like, and a subsystem's is looked up anyway.
func parseNQN(f *nvme.NQNField) (string, bool) {
	i := bytes.IndexByte(f[:], 0)
	if i <= 0 || i > nvme.NQNMaxLength || !utf8.Valid(f[:i]) {
		return "", false
	}
	return string(f[:i]), true
}

// findSubsystem returns the subsystem for a host that came in at a listener.
// Target.mu is held.
func (t *Target) findSubsystem(nqn string, l *Listener) (*Subsystem, error) {
	if nqn == nvme.DiscoveryNQN {
		return t.discovery, nil
	}
	if s := t.subsystems[nqn]; s != nil && s.reachable(l) {
		return s, nil
	}
	return nil, badData(nvme.ConnectDataOffsetSUBNQN, "there is no such subsystem at this address")
}

// connectAdmin makes a controller.
func (x *control) connectAdmin(data *nvme.ConnectData) error {
	q, t := x.q, x.q.target
	subNQN, host, err := x.checkConnect(data)
	if err != nil {
		return err
	}
	if data.CNTLID != nvme.CNTLIDDynamic {
		return badData(nvme.ConnectDataOffsetCNTLID, "CNTLID is not FFFFh: all controllers are dynamic")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.findSubsystem(subNQN, q.listener)
	switch {
	case err != nil:
		return err
	case !s.allowed(host.NQN):
		return refuse(nvme.StatusConnectInvalidHost, "the host is not allowed")
	case t.isClosed():
		return refuse(nvme.StatusConnectControllerBusy, ErrTargetClosed.Error())
	case q.dead.Load():
		return errPeerGone
	}
	id := s.newCNTLID()
	if id == 0 {
		return refuse(nvme.StatusConnectControllerBusy, "all controller identifiers of the subsystem are in use")
	}
	c := &Controller{
		target:    t,
		sub:       s,
		id:        id,
		host:      host,
		hostAddr:  q.opts.HostAddr,
		localAddr: q.opts.LocalAddr,
		listener:  q.listener,
		admin:     q,
		created:   time.Now(),
		queues:    make(map[uint16]*Queue),
		kaSeen:    make(map[*Queue]uint64),
	}
	c.log = t.log.With("subsystem", s.nqn, "cntlid", id, "host", host.NQN, "addr", c.hostAddr)
	c.reset()
	c.feat.setKATO(x.cmd.KATO())
	s.controllers[id] = c
	t.controllers[c] = struct{}{}
	q.ctrl, q.qid = c, 0
	x.c = c
	x.connected(c)
	c.log.Info("host connected", "hostid", host.ID.String(), "listener", q.listener.String(),
		"kato", c.feat.keepAlive(), "group", q.group.Index)
	return nil
}

// connectIO joins a queue to its controller.
func (x *control) connectIO(data *nvme.ConnectData) error {
	q, t := x.q, x.q.target
	qid := x.cmd.QID()
	subNQN, host, err := x.checkConnect(data)
	if err != nil {
		return err
	}
	limit := time.NewTimer(t.opts.DuplicateQID)
	defer limit.Stop()
	for expired := false; ; {
		t.mu.Lock()
		c, wait, err := t.joinQueue(q, x.cmd.SQSIZE(), qid, subNQN, data.CNTLID, host)
		if err == nil && !wait {
			x.connected(c)
			c.log.Info("queue connected", "qid", qid, "entries", int(x.cmd.SQSIZE())+1, "group", q.group.Index)
		}
		changed := t.changed
		t.mu.Unlock()
		switch {
		case err != nil:
			return err
		case !wait:
			return nil
		case expired:
			return refuse(nvme.StatusCommandSequenceError, "a queue of this QID is connected")
		}
		select {
		case <-changed:
		case <-limit.C:
			expired = true
		}
	}
}

// joinQueue tries to. wait says that a queue of this QID still exists: it may only
// be on its way out. Target.mu is held.
func (t *Target) joinQueue(q *Queue, sqsize, qid uint16, subNQN string, cntlid uint16, host HostIdentity) (c *Controller, wait bool, err error) {
	s, err := t.findSubsystem(subNQN, q.listener)
	if err != nil {
		return nil, false, err
	}
	c = s.controllers[cntlid]
	switch {
	case c == nil || c.ended:
		return nil, false, badData(nvme.ConnectDataOffsetCNTLID, "there is no such controller, or its admin queue is gone")
	case c.host.NQN != host.NQN:
		return nil, false, badData(nvme.ConnectDataOffsetHOSTNQN, "HOSTNQN is not that of the controller's admin queue")
	case c.host.ID != host.ID:
		return nil, false, badData(nvme.ConnectDataOffsetHostID, "HOSTID is not that of the controller's admin queue")
	case c.discovery():
		return nil, false, badField(nvme.ConnectOffsetQID, "a discovery controller has no I/O queues")
	case qid > c.granted:
		return nil, false, badField(nvme.ConnectOffsetQID, "QID is above the number of queues granted")
	case c.draining:
		return nil, false, refuse(nvme.StatusConnectControllerBusy, "the controller is being reset")
	case !c.cc.EN() || !c.csts.RDY() || c.csts.SHST() != nvme.ShutdownStatusNormal:
		return nil, false, badField(nvme.ConnectOffsetQID, "the controller is not enabled")
	case c.cc.IOSQES() != nvme.IOSQES || c.cc.IOCQES() != nvme.IOCQES:
		return nil, false, badField(nvme.ConnectOffsetQID, "CC.IOSQES is not 6 or CC.IOCQES is not 4")
	case q.listener != c.listener && q.listener.info.TrType != c.listener.info.TrType:
		return nil, false, badField(nvme.ConnectOffsetQID, "the admin queue came over another transport")
	case q.dead.Load():
		return nil, false, errPeerGone
	case c.queues[qid] != nil:
		return nil, true, nil
	}
	c.queues[qid] = q
	q.ctrl, q.qid = c, qid
	return c, false, nil
}

// connected makes the queue live on its reactor. Target.mu is held: what changes
// later is posted later.
func (x *control) connected(c *Controller) {
	q, cmd := x.q, &x.cmd
	admin := cmd.QID() == 0
	view, all := c.sub.anaView(c.listener)
	period := c.kaPeriod()
	writeCache := c.feat.writeCache()
	space := c.sub.spaces[q.group.Index]
	x.result = uint64(c.id)
	q.group.Reactor.Post(func() {
		if q.state != queueConnecting {
			return // closed meanwhile
		}
		q.state = queueLive
		q.admin = admin
		q.assoc = c
		q.errQID = cmd.QID()
		q.sqSize = cmd.SQSIZE() + 1
		q.space = space
		q.ana, q.anaAll = view, all
		q.forceFUA = !writeCache
		if cmd.CATTR()&nvme.ConnectDisableSQFlow != 0 {
			q.sqNoFlow = true
		}
		q.disarm()
		if admin {
			q.ka.start(q, period)
		}
	})
}
