package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func reader(s string) *bufio.Reader { return bufio.NewReader(strings.NewReader(s)) }

func TestOneReply(t *testing.T) {
	for _, reply := range []string{
		"+OK\r\n",
		"-NOSCRIPT No matching script.\r\n",
		":-9223372036854775808\r\n",
		"$-1\r\n",
		"$0\r\n\r\n",
		"$7\r\na\r\nb\r\nc\r\n",
		"*-1\r\n",
		"*0\r\n",
		"*3\r\n:1\r\n*1\r\n$1\r\nx\r\n$-1\r\n",
		"_\r\n",
		"#t\r\n",
		",3.14\r\n",
		"(3492890328409238509324850943850943825024385\r\n",
		"!9\r\nERR wrong\r\n",
		"=8\r\ntxt:text\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
		"~2\r\n:1\r\n:2\r\n",
		"|1\r\n+ttl\r\n:3600\r\n+value\r\n", // an attribute belongs to the value behind it
	} {
		const next = "+NEXT\r\n"
		r := reader(reply + next)
		raw, push, err := readReply(r)
		if err != nil || push || string(raw) != reply {
			t.Errorf("readReply(%q) = %q, push %v, %v; want it whole", reply, raw, push, err)
			continue
		}
		if rest, _ := io.ReadAll(r); string(rest) != next {
			t.Errorf("after %q the stream holds %q, want %q", reply, rest, next)
		}
	}
}

func TestAPushAnswersNothing(t *testing.T) {
	// Longer than a reader's buffer: the kind must not be looked up afterwards.
	message := fmt.Sprintf(">2\r\n$10\r\ninvalidate\r\n$9000\r\n%s\r\n", strings.Repeat("+", 9000))
	raw, push, err := readReply(reader(message))
	if err != nil || !push || string(raw) != message {
		t.Errorf("readReply = %d bytes, push %v, %v; want %d bytes, push", len(raw), push, err, len(message))
	}
}

func TestOneCommand(t *testing.T) {
	for _, row := range []struct{ stream, name string }{
		{"*1\r\n$4\r\nPING\r\n", "PING"},
		{"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\na\r\nb\r\n\r\n", "SET"},
		{"PING\r\n", "PING"},
		{"  get  k \r\n", "get"},
		{"\r\n", ""}, // the server ignores empty lines and empty arrays
		{"*0\r\n", ""},
		{"*-1\r\n", ""},
	} {
		raw, name, err := readCommand(reader(row.stream + "*1"))
		if err != nil || name != row.name || string(raw) != row.stream {
			t.Errorf("readCommand(%q) = %q, %q, %v; want it whole, %q", row.stream, raw, name, err, row.name)
		}
	}
	for _, stream := range []string{
		"*x\r\n", "*1\r\n$1\r\nab\r\n",
	} {
		if raw, name, err := readCommand(reader(stream)); !errors.Is(err, errMalformed) {
			t.Errorf("readCommand(%q) = %q, %q, %v; want errMalformed", stream, raw, name, err)
		}
	}
}
