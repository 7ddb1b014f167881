//go:build linux

package chaos

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Margins for what varies with load: connections to Redis, timers, the heap.
const (
	moreGoroutines = 40
	moreFiles      = 40
	moreMemory     = 64 << 20
	restWithin     = 5 * time.Second
)

// resources is what one regiond holds.
type resources struct {
	goroutines, files, memory int64
}

// holds asks a region's regiond and the kernel. The gateway's connections are hung up
// first: each has a goroutine and a file at the other end. Those to the bare handler are, too:
// what is sent next is to be compared, and has to dial.
func (r *Region) holds() (resources, error) {
	var v resources
	r.target.Regiond.HangUp()
	r.target.Bare.HangUp()
	_, body, err := r.admin.Do("GET", "/debug/pprof/goroutine?debug=1", "")
	if err != nil {
		return v, fmt.Errorf("%s: goroutines: %w", r.Name, err)
	}
	line, _, _ := strings.Cut(string(body), "\n")
	if v.goroutines, err = strconv.ParseInt(line[strings.LastIndexByte(line, ' ')+1:], 10, 64); err != nil {
		return v, fmt.Errorf("%s: goroutines: %q", r.Name, line)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.regiond.cmd.Process.Pid))
	if err != nil {
		return v, err
	}
	v.files = int64(len(files))
	v.memory, _, err = r.memory()
	return v, err
}

// holdings are those of all regions.
func (w *World) holdings() (map[string]resources, error) {
	all := map[string]resources{}
	for _, r := range w.Regions {
		v, err := r.holds()
		if err != nil {
			return nil, err
		}
		all[r.Name] = v
	}
	return all, nil
}

// Flat insists that no regiond keeps more goroutines, files or memory than it had at
// rest before. What a load needed is given back within seconds.
func (w *World) Flat(before map[string]resources) (objects []string) {
	_, err := w.Await(restWithin, "resources given back", func() error {
		after, err := w.holdings()
		if err != nil {
			return err
		}
		objects = grown(before, after)
		if len(objects) > 0 {
			return fmt.Errorf("%s", objects[0])
		}
		return nil
	})
	if err != nil && len(objects) == 0 {
		objects = []string{err.Error()}
	}
	return objects
}

// grown returns what has grown beyond its margin.
func grown(before, after map[string]resources) (objects []string) {
	for _, name := range Names() {
		b, a := before[name], after[name]
		for _, of := range []struct {
			what            string
			was, is, within int64
		}{
			{"goroutines", b.goroutines, a.goroutines, moreGoroutines},
			{"open files", b.files, a.files, moreFiles},
			{"bytes of memory", b.memory, a.memory, moreMemory},
		} {
			if of.is > of.was+of.within {
				objects = append(objects, fmt.Sprintf("flat: %s: %d %s at rest, %d before the fault", name, of.is, of.what, of.was))
			}
		}
	}
	return objects
}
