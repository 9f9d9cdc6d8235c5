// Package target is the NVMe over Fabrics target without its network and without
// its storage: subsystems, namespaces, controllers, queues, and what each command
// means. Transports plug in through Conn and Queue, backends through Backend; the
// package knows neither by name.
//
//	transport                          target                            backend
//	─────────                          ──────                            ───────
//	capsule ─▶ Queue.Prepare(r) ─────▶ parse, check: Dir, Length, Lent
//	data in ─▶ Queue.Execute(r) ─────▶ I/O ───────────────────────────▶ BackendQueue.Submit(io)
//	                                     │                                      │
//	Conn.Respond(r) ◀──────────────── Cqe, status, error log ◀───────── IO.Complete(st)
//	                                     │
//	                                   admin, fabrics ─▶ executor ─▶ control goroutine
//	Conn.Respond(r) ◀──────────────── inbox ◀────────────────────────────────┘
//
// Who owns what:
//
//   - A Queue and its Requests belong to one reactor, from the first capsule to the
//     last response. The I/O way (io.go) takes no lock and allocates nothing.
//   - A reactor sees a subsystem's namespaces through its space: a table that the
//     control plane changes by functions in the reactor's inbox (pollgroup.go).
//   - What belongs to what (subsystems, hosts, listeners, controllers, features)
//     is the control plane's, under Target.mu. Reactors never take that lock.
//     Order: Subsystem.config, Target.mu, Controller.mu, Target.conns.
//   - Commands that are no I/O run on a goroutine of their queue, in order
//     (executor.go), but for Keep Alive, Asynchronous Event Request, Abort and
//     Disconnect, which the reactor serves itself.
//
// Every wait has an end: a connection without Connect, an association that is
// disabled or silent, a Connect for a QID that is in use, a connection after
// Disconnect. Timers in the reactors see to it (Queue.onTimer).
//
// Where to look: connect.go, fabrics.go, properties.go for fabrics commands;
// admin.go, identify.go, features.go, logs.go, discovery.go, aer.go, abort.go,
// keepalive.go for admin commands; io.go for I/O; errors.go for everything that
// becomes a status; stats.go for counters; subsystem.go, namespace.go, listener.go,
// ana.go, controller.go for what can be changed while hosts are connected.
package target
