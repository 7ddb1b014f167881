package sim

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Kept is the file of a campaign that goes on where it was interrupted. It has a line for each world that was played: its
// seed, how much region time that was, how much of it was played, and what did not hold, or ok.
type Kept struct {
	file   *os.File
	done   map[uint64]bool // seeds of worlds in which all held
	report Report          // of these
}

// OpenKept opens a file, which need not be there yet.
func OpenKept(path string) (*Kept, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	k := &Kept{file: file, done: map[uint64]bool{}}
	in := bufio.NewScanner(file)
	for in.Scan() {
		if err := k.read(in.Text()); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %q: %w", path, in.Text(), err), file.Close())
		}
	}
	return k, in.Err()
}

func (k *Kept) read(line string) error {
	words := strings.Fields(line)
	if len(words) < 4 {
		return errors.New("no seed, region time, time played and verdict")
	}
	seed, err := strconv.ParseUint(words[0], 10, 64)
	all, err2 := time.ParseDuration(words[1])
	played, err3 := time.ParseDuration(words[2])
	if err := errors.Join(err, err2, err3); err != nil || words[3] != "ok" || k.done[seed] {
		return err
	}
	k.done[seed] = true
	k.report.add(&Report{Worlds: 1, RegionTime: all, Played: played})
	return nil
}

// add keeps what became of a world.
func (k *Kept) add(p Plan, r *Report) error {
	verdict := "ok"
	if len(r.Failed) > 0 {
		verdict = r.Failed[0].Name
	}
	_, err := fmt.Fprintln(k.file, p.Seed, r.RegionTime, r.Played, verdict)
	return err
}

// Close closes the file.
func (k *Kept) Close() error { return k.file.Close() }
