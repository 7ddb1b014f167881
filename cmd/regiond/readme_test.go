package main

import (
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// block returns the body of the first code block of README.md that the pattern
// finds; its first group is the body.
func block(t *testing.T, pattern string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		t.Fatalf("README.md has no %s", pattern)
	}
	return string(m[1])
}

// members lists the members of a JSON document in the order in which they stand.
func members(t *testing.T, doc string) []string {
	t.Helper()
	var names []string
	d := json.NewDecoder(strings.NewReader(doc))
	var value func(path string)
	token := func() json.Token {
		tok, err := d.Token()
		if err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		return tok
	}
	value = func(path string) {
		switch token() {
		case json.Delim('{'):
			for d.More() {
				name := path + "/" + token().(string)
				names = append(names, name)
				value(name)
			}
			token()
		case json.Delim('['):
			for d.More() {
				value(path)
			}
			token()
		}
	}
	value("")
	return names
}

// TestREADMEShowsARealAnswer: who types what the first screen says sees what the
// first screen shows, to the last member and value.
func TestREADMEShowsARealAnswer(t *testing.T) {
	question := block(t, "curl -s -d '([^']+)' 127.0.0.1:8080/v1/check\n")
	shown := block(t, "(?s)```json\n(.*?)```")
	p := build(t, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	p.run(t)
	a := p.ask(t, http.MethodPost, "/v1/check", question, "Content-Type: application/x-www-form-urlencoded", "Accept: */*")
	a.is(t, http.StatusOK)
	if diff := cmp.Diff(members(t, shown), members(t, a.body)); diff != "" {
		t.Errorf("README.md and a real answer differ in their members (-README +real):\n%s", diff)
	}
	var want, got any
	if err := json.Unmarshal([]byte(shown), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("README.md and a real answer differ (-README +real):\n%s", cmp.Diff(want, got))
	}
}
