// Package control turns a configuration (package config, what a person wrote) into a running target, and shows what it
// is doing.
//
//	config.Config ──▶ Start ──▶ Server
//	                    │  pool, reactors          memory, reactor
//	                    │  backends                backends.go: a constructor for each type
//	                    │  target, subsystems      target
//	                    │  transports, listeners   transports.go: RDMA, TCP behind one small interface
//	                    └─ metrics, health         http.go, metrics*.go
//
// Start opens things in this order and notes for each how it is closed. A step that fails, like Server.Close, closes what
// was opened in the reverse order: hosts first, drives last.
package control
