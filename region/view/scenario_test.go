package view_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
)

// A scenario is a file of lines "<time> <verb> <arguments>", in order of time; see
// testdata/README for the verbs.
type scenario struct {
	t       *testing.T
	w       *world
	line    int
	counted map[string]int // mode changes before the last "count"
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d scenarios found (%v), there are more", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &scenario{t: t, counted: map[string]int{}}
			for i, line := range strings.Split(string(text), "\n") {
				s.line = i + 1
				if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
					s.do(strings.Fields(line))
				}
			}
		})
	}
}

func (s *scenario) do(words []string) {
	s.t.Helper()
	if words[0] == "regions" {
		s.w = newWorld(s.weights(words[1:]))
		return
	}
	s.w.run(s.duration(words[0]))
	verb, args := words[1], words[2:]
	switch verb {
	case "start":
		for _, name := range args {
			s.w.start(name)
		}
	case "kill", "leave":
		for _, name := range args {
			s.w.stop(s.node(name), verb == "leave")
		}
	case "cut", "heal":
		s.links(args, verb == "cut")
	case "flap": // flap a|b on off until
		s.flap(args)
	case "lose": // lose a>b: the next beat
		s.w.lose[args[0]]++
	case "delay":
		s.w.delay = s.duration(args[0])
	case "pause":
		s.node(args[0]).paused = s.w.now + s.duration(args[1])
	case "gossip":
		s.w.gossip[args[0]] = map[string]members.Word{"alive": members.Alive, "dead": members.Dead, "unknown": ""}[args[1]]
	case "full":
		s.node(args[0]).Full = args[1] == "on"
	case "key":
		s.node(args[0]).Key = uint64(len(args[1])) // any but that of the others
	case "unsent":
		s.node(args[0]).Unsent = s.duration(args[1])
	case "reload": // reload a,b a=2 b=1
		for _, name := range strings.Split(args[0], ",") {
			s.node(name).reload(s.weights(args[1:]))
		}
	case "topology": // what is started from now on has these
		s.w.weights = s.weights(args)
	default:
		s.check(verb, args)
	}
}

func (s *scenario) check(verb string, args []string) {
	s.t.Helper()
	switch verb {
	case "sees": // sees a,b share peer_silent(c) M=a,b
		for _, name := range strings.Split(args[0], ",") {
			if got, want := s.node(name).sees(), strings.Join(args[1:], " "); got != want {
				s.fail("%s sees %q, want %q", name, got, want)
			}
		}
	case "row": // row a b waiting
		for _, p := range s.node(args[0]).view.Peers {
			if p.Region == args[1] && p.State.String() != args[2] {
				s.fail("%s has %s as %v (%s), want %s", args[0], args[1], p.State, p.Text, args[2])
			}
		}
	case "shares": // shares a 50 b=50: of 100, as a divides them
		t := s.node(args[0]).view.Explain(100, quota.FailShare, nil, nil, 0)
		got := []string{strconv.FormatInt(t.Part, 10)}
		for _, p := range t.Peers {
			got = append(got, fmt.Sprintf("%s=%d", p.Region, p.Part))
		}
		if got, want := strings.Join(got, " "), strings.Join(args[1:], " "); got != want {
			s.fail("%s divides 100 as %q, want %q", args[0], got, want)
		}
	case "count": // mode changes are counted from here
		for _, n := range s.w.nodes {
			s.counted[n.name()] = len(n.changed)
		}
	case "changes": // changes a 0..2
		least, most, _ := strings.Cut(args[1], "..")
		got := len(s.node(args[0]).changed) - s.counted[args[0]]
		if lo, hi := s.number(least), s.number(most); got < lo || got > hi {
			s.fail("the mode of %s changed %d times, want %d to %d", args[0], got, lo, hi)
		}
	default:
		s.fail("unknown verb %q", verb)
	}
}

// links cuts or heals "a>b", "a|b,c" (both ways, every pair) or "all".
func (s *scenario) links(args []string, cut bool) {
	for _, arg := range args {
		sides := strings.FieldsFunc(arg, func(r rune) bool { return r == '|' || r == '>' })
		if arg == "all" {
			sides = []string{s.every(), s.every()}
		}
		for _, from := range strings.Split(sides[0], ",") {
			for _, to := range strings.Split(sides[1], ",") {
				s.w.cut[from+">"+to] = cut && from != to
				if !strings.Contains(arg, ">") {
					s.w.cut[to+">"+from] = cut && from != to
				}
			}
		}
	}
}

func (s *scenario) every() string {
	var names []string
	for _, w := range s.w.weights {
		names = append(names, w.Region)
	}
	return strings.Join(names, ",")
}

func (s *scenario) flap(args []string) {
	on, off, until := s.duration(args[1]), s.duration(args[2]), s.duration(args[3])
	for s.w.now-epoch < until {
		s.links(args[:1], true)
		s.w.run(s.w.now - epoch + off)
		s.links(args[:1], false)
		s.w.run(s.w.now - epoch + on)
	}
}

func (s *scenario) node(name string) *node {
	n := s.w.find(name)
	if n == nil {
		s.fail("there is no process %q", name)
	}
	return n
}

// weights reads "a=2 b=1"; a bare name has weight 1.
func (s *scenario) weights(words []string) []quota.Weight {
	var weights []quota.Weight
	for _, word := range words {
		name, weight, ok := strings.Cut(word, "=")
		if !ok {
			weight = "1"
		}
		weights = append(weights, quota.Weight{Region: name, Weight: int64(s.number(weight))})
	}
	return weights
}

func (s *scenario) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.fail("%v", err)
	}
	return d
}

func (s *scenario) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.fail("%v", err)
	}
	return n
}

func (s *scenario) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("line %d, at %v: %s", s.line, s.w.now-epoch, fmt.Sprintf(format, args...))
}
