package sim

import (
	"errors"

	"rocet/nvme"
)

// Counts returns what the controller saw so far.
func (c *Controller) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Media runs fn with the drive's blocks.
func (c *Controller) Media(fn func(media []byte)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(c.media)
}

// SetHook sets who looks at commands; nil: nobody.
func (c *Controller) SetHook(h Hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = h
}

// Reconfigure changes what kind of drive it is.
func (c *Controller) Reconfigure(fn func(*Config)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(&c.cfg)
}

// Fail sets CSTS.CFS: nothing is executed until the controller is reset.
func (c *Controller) Fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fatal = true
}

// Held returns how many commands were dropped or swallowed, and not aborted.
func (c *Controller) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.stuck)
}

// FreezeReady makes the controller ignore that CC.EN goes to 0, and CSTS.RDY stay as it is, until a function level reset.
func (c *Controller) FreezeReady() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noReady = true
}

// Remove pulls the drive: registers read as all ones.
func (c *Controller) Remove() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = true
	c.dropQueues()
}

// Insert puts it back, with its media.
func (c *Controller) Insert() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed, c.noReady = false, false
}

// Open opens the function again after Close.
func (c *Controller) Open() (*Controller, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return nil, errors.New("sim: no such PCI function")
	}
	if c.closed {
		c.open()
	}
	return c, nil
}

// AskBack is the kernel asking for the function.
func (c *Controller) AskBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	kick(c.reqFD)
}

// PCIError is a fatal PCI Express error.
func (c *Controller) PCIError() {
	c.mu.Lock()
	defer c.mu.Unlock()
	kick(c.errFD)
}

// Warn raises a SMART critical warning.
func (c *Controller) Warn(warning uint8) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warning = warning
	c.events = append(c.events, nvme.MakeAsyncEvent(nvme.EventSMART, nvme.EventSMARTSpare, nvme.LogSMART))
}

// Resize gives the namespace another size, and says so.
func (c *Controller) Resize(blocks uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	media := make([]byte, blocks<<c.cfg.BlockShift)
	copy(media, c.media)
	c.media, c.cfg.Blocks = media, blocks
	c.changed = append(c.changed, 1)
	c.events = append(c.events, nvme.AsyncNamespaceChanged)
}

// Event raises any event.
func (c *Controller) Event(e nvme.AsyncEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

// Quiet tells whether the controller can do no DMA now.
func (c *Controller) Quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removed || c.closed || !c.busMaster || !c.enabled
}
