package lab

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// FioJob is a job of fio on a device. What is empty has the default in brackets.
type FioJob struct {
	Name    string
	File    string        // block device, or character device for io_uring_cmd
	Engine  string        // io_uring [io_uring, or io_uring_cmd for a character device]
	RW      string        // read, randwrite, ...
	BS      string        // block size; or give --bsrange in Args
	Depth   int           // [1]
	Jobs    int           // [1]
	Size    string        // bytes to work on [the whole device]
	Runtime time.Duration // [until Size is done]
	Args    []string      // further ones: "--verify=crc32c"
	Limit   time.Duration // after which the test fails [Runtime + 2 minutes]
}

// FioResult is what fio measured, its jobs taken together.
type FioResult struct {
	Error       int
	Read, Write FioDirection
}

// FioDirection is one direction's part. Latencies are whole ones, submission included.
type FioDirection struct {
	IOs                       int64
	Bytes                     int64
	IOPS                      float64
	BW                        float64 // bytes a second
	Mean, P50, P99, P999, Max time.Duration
}

// Fio runs a job; it must end without an error.
func Fio(t T, job FioJob) FioResult {
	t.Helper()
	res, err := TryFio(job)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return res
}

// TryFio runs a job that may fail.
func TryFio(job FioJob) (FioResult, error) {
	if job.Limit == 0 {
		job.Limit = job.Runtime + 2*time.Minute
	}
	out, err := TryRun(job.Limit, "fio", job.args()...)
	if err != nil {
		return FioResult{}, err
	}
	return parseFio(out)
}

func (j FioJob) args() []string {
	generic := strings.HasPrefix(j.File, "/dev/ng")
	if j.Name == "" {
		j.Name = "job"
	}
	if j.Engine == "" {
		j.Engine = "io_uring"
		if generic {
			j.Engine = "io_uring_cmd"
		}
	}
	args := []string{"--name=" + j.Name, "--filename=" + j.File, "--ioengine=" + j.Engine, "--rw=" + j.RW,
		fmt.Sprintf("--iodepth=%d", max(j.Depth, 1)), fmt.Sprintf("--numjobs=%d", max(j.Jobs, 1)),
		"--group_reporting", "--lat_percentiles=1", "--clat_percentiles=0", "--output-format=json"}
	if j.Engine == "io_uring_cmd" {
		args = append(args, "--cmd_type=nvme")
	} else {
		args = append(args, "--direct=1")
	}
	if j.BS != "" {
		args = append(args, "--bs="+j.BS)
	}
	if j.Size != "" {
		args = append(args, "--size="+j.Size)
	}
	if j.Runtime != 0 {
		args = append(args, "--time_based", fmt.Sprintf("--runtime=%dms", j.Runtime.Milliseconds()))
	}
	return append(args, j.Args...)
}

// fioOutput is the part of fio's JSON that is used; see fio(1), "JSON OUTPUT".
type fioOutput struct {
	Jobs []struct {
		Error       int
		Read, Write fioDirection
	}
}

type fioDirection struct {
	IOBytes  int64   `json:"io_bytes"`
	TotalIOs int64   `json:"total_ios"`
	IOPS     float64 `json:"iops"`
	BWBytes  float64 `json:"bw_bytes"`
	Lat      struct {
		Mean, Max  float64
		Percentile map[string]float64
	} `json:"lat_ns"`
}

func (d fioDirection) result() FioDirection {
	p := d.Lat.Percentile
	return FioDirection{IOs: d.TotalIOs, Bytes: d.IOBytes, IOPS: d.IOPS, BW: d.BWBytes,
		Mean: time.Duration(d.Lat.Mean), Max: time.Duration(d.Lat.Max), P50: time.Duration(p["50.000000"]),
		P99: time.Duration(p["99.000000"]), P999: time.Duration(p["99.900000"])}
}

// parseFio decodes fio's output; warnings may come before the JSON.
func parseFio(out string) (FioResult, error) {
	if i := strings.Index(out, "{"); i > 0 {
		out = out[i:]
	}
	var o fioOutput
	if err := json.Unmarshal([]byte(out), &o); err != nil {
		return FioResult{}, fmt.Errorf("fio: %w in %q", err, out)
	}
	if len(o.Jobs) != 1 {
		return FioResult{}, fmt.Errorf("fio: %d jobs reported, want 1 group", len(o.Jobs))
	}
	j := o.Jobs[0]
	res := FioResult{Error: j.Error, Read: j.Read.result(), Write: j.Write.result()}
	if res.Error != 0 {
		return res, fmt.Errorf("fio: error %d", res.Error)
	}
	return res, nil
}
