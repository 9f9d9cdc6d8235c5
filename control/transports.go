package control

import (
	"fmt"

	"rocet/control/config"
	"rocet/rdma"
	"rocet/tcp"
)

// transport is a network that hosts come over, as far as the control plane cares.
type transport struct {
	name    string
	listen  func(addr string, port uint16) (listener, error)
	close   func() error
	collect func(*sink) // its metrics
}

// listener is an address of a transport.
type listener interface {
	Close()
	Err() error // why hosts can't connect at the moment
	String() string
}

// transportTypes open the transports that a configuration can name.
var transportTypes = map[string]func(*Server, *config.Config, Options) (*transport, error){
	"rdma": openRDMA,
	"tcp":  openTCP,
}

func openRDMA(s *Server, cfg *config.Config, o Options) (*transport, error) {
	provider, err := o.OpenVerbs()
	if err != nil {
		return nil, err
	}
	c := rdma.Config{MaxQueueDepth: cfg.RDMA.MaxQueueDepth, InCapsuleData: inCapsule(cfg.RDMA.InCapsuleData, rdma.NoInCapsuleData)}
	if cfg.RDMA.SRQ != "" {
		if c.SRQ, err = rdma.ParseSRQPolicy(cfg.RDMA.SRQ); err != nil {
			return nil, fmt.Errorf("rdma.srq: %w", err)
		}
	}
	t, err := rdma.New(rdma.Options{Target: s.target, Pool: s.pool, Provider: provider, Config: c, Log: s.log})
	if err != nil {
		return nil, err
	}
	return &transport{
		name: "rdma",
		listen: func(addr string, port uint16) (listener, error) {
			l, err := t.Listen(addr, port)
			if err != nil {
				return nil, err
			}
			return l, nil
		},
		close:   t.Close,
		collect: func(k *sink) { collectRDMA(k, t.Stats()) },
	}, nil
}

func openTCP(s *Server, cfg *config.Config, _ Options) (*transport, error) {
	t, err := tcp.New(tcp.Options{Target: s.target, Pool: s.pool, Log: s.log, Config: tcp.Config{
		MaxQueueDepth: cfg.TCP.MaxQueueDepth, InCapsuleData: inCapsule(cfg.TCP.InCapsuleData, tcp.NoInCapsuleData),
	}})
	if err != nil {
		return nil, err
	}
	return &transport{
		name: "tcp",
		listen: func(addr string, port uint16) (listener, error) {
			l, err := t.Listen(addr, port)
			if err != nil {
				return nil, err
			}
			return l, nil
		},
		close:   t.Close,
		collect: func(k *sink) { collectTCP(k, t.Stats()) },
	}, nil
}

// inCapsule is a configured size as the transports take it: 0 is their default, and none has a name.
func inCapsule(size *config.Size, none int) int {
	switch {
	case size == nil:
		return 0
	case *size == 0:
		return none
	}
	return int(*size)
}
