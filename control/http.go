package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rocet/control/config"
)

// endpoint is the HTTP server for metrics and health. It answers from the moment it is opened; /readyz says no until the
// server has started.
type endpoint struct {
	listener net.Listener
	registry *prometheus.Registry
	server   atomic.Pointer[Server]
}

// openMetrics listens. Nil metrics serve nothing.
func (s *Server) openMetrics(cfg *config.Config) error {
	addr := cfg.Metrics.Listen
	switch addr {
	case "off":
		return nil
	case "":
		addr = DefaultMetrics
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("metrics.listen %s: %w; have another address in the configuration, or off", addr, err)
	}
	e := &endpoint{listener: l, registry: prometheus.NewRegistry()}
	e.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{
		ErrorLog: httpErrors{s}, MaxRequestsInFlight: 4, Timeout: 10 * time.Second, EnableOpenMetrics: true,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", e.readyz)
	h := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	go func() {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the metrics endpoint ended", "error", err)
		}
	}()
	s.metrics = e
	s.onClose("the metrics", func(ctx context.Context) error {
		// What is being answered has a second: by now there is nothing left to tell.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if h.Shutdown(ctx) != nil {
			return h.Close()
		}
		return nil
	})
	return nil
}

// serve adds the running server's own metrics.
func (e *endpoint) serve(s *Server) {
	if e == nil {
		return
	}
	e.registry.MustRegister(&collector{s})
	e.server.Store(s)
	s.onClose("readiness", func(context.Context) error { e.server.Store(nil); return nil })
}

func (e *endpoint) addr() string {
	if e == nil {
		return ""
	}
	return e.listener.Addr().String()
}

func (e *endpoint) readyz(w http.ResponseWriter, _ *http.Request) {
	s := e.server.Load()
	if s == nil {
		answer(w, http.StatusServiceUnavailable, "starting or stopping")
		return
	}
	if err := s.Ready(); err != nil {
		answer(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	answer(w, http.StatusOK, "ready")
}

func answer(w http.ResponseWriter, code int, status string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": status})
}

// httpErrors logs what a scrape could not gather.
type httpErrors struct{ s *Server }

func (h httpErrors) Println(v ...any) { h.s.log.Warn("metrics: " + fmt.Sprint(v...)) }
