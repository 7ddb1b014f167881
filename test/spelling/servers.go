package spelling

import (
	"net/url"
	"path"
	"regexp"
	"strings"
)

// Server is a model of a server: Serves reports whether it runs the handler of /login
// for a path, which has no query. A slash at the end is ignored, as most applications do.
type Server struct {
	Name   string
	Serves func(path string) bool
}

// Servers returns the models. What none of them does is not a way to spell a path.
func Servers() []Server {
	exact := func(p string) bool { return strings.TrimSuffix(p, "/") == "/login" }
	fold := func(p string) bool { return exact(strings.ToLower(p)) }
	// reads makes a model of what a server does to a path, in its order, before it compares.
	reads := func(name string, compare func(string) bool, steps ...func(string) string) Server {
		return Server{name, func(p string) bool {
			for _, step := range steps {
				if p = step(p); p == "" { // refused
					return false
				}
			}
			return compare(p)
		}}
	}
	return []Server{
		reads("nginx", exact, decode, mergeSlashes, resolve),
		reads("nginx ignoring case", fold, decode, mergeSlashes, resolve),
		reads("nginx keeping slashes", exact, decode, resolve),
		reads("nginx behind proxy_pass $uri", exact, decode, mergeSlashes, resolve, query, decode, mergeSlashes, resolve),
		reads("HAProxy", exact),
		reads("HAProxy ignoring case", fold),
		reads("HAProxy url_dec", exact, decodeLenient),
		reads("HAProxy normalize-uri", exact, mergeSlashes, decodeUnreserved, resolveClamped),
		reads("Caddy", fold, decode, trimEnd, path.Clean),
		reads("Go URL.Path", exact, decode),
		reads("Go path.Clean", exact, decode, path.Clean),
		reads("Go ServeMux", func(p string) bool { return p == "/login" }, decode, cleanOnly),
		// Envoy resolves dots, encoded or not, merges slashes and decodes %2F where it is told
		// to; the application decodes the rest.
		reads("Envoy KEEP_UNCHANGED", exact, decodeDots, resolve, mergeSlashes, decode),
		reads("Envoy UNESCAPE_AND_FORWARD", exact, decodeSlashes, decodeDots, resolve, mergeSlashes, decode),
		reads("Envoy before nginx", exact, decodeSlashes, decodeDots, resolve, mergeSlashes, decode, mergeSlashes, resolve),
		reads("Apache", exact, refuseSlashes, decode, mergeSlashes, resolve),
		reads("Apache AllowEncodedSlashes On", exact, mergeSlashes, decode, resolve),
		reads("Apache AllowEncodedSlashes NoDecode", exact, keepSlashes, decode, mergeSlashes, resolve),
		reads("Apache before Tomcat", exact, keepSlashes, decode, mergeSlashes, resolve, parameters, decodeLenient, resolve),
		reads("Tomcat", exact, refuseSlashes, parameters, decode, mergeSlashes, resolve),
		reads("Tomcat decode", exact, parameters, decode, mergeSlashes, resolve),
		reads("Tomcat passthrough", exact, parameters, keepSlashes, decode, mergeSlashes, resolve),
		reads("Tomcat ALLOW_BACKSLASH", exact, parameters, decode, backslashes, mergeSlashes, resolve),
		reads("Spring cutting ; after decoding", exact, decode, parameters, mergeSlashes, resolve),
		reads("Jetty", exact, parameters, decodeDots, resolve, decode),
		reads("Express", fold),
		reads("Node URL", exact, backslashes, host, decodeDots, resolve),
		reads("Node URL decoded", exact, backslashes, host, decodeDots, resolve, decode),
		reads("IIS", fold, decode, backslashes, mergeSlashes, resolve, trimEnd),
		reads("IIS allowDoubleEscaping", fold, decode, decodeLenient, backslashes, mergeSlashes, resolve, trimEnd),
	}
}

// Steps. Each returns "" where the server refuses the path.

func decode(p string) string {
	d, err := url.PathUnescape(p)
	if err != nil || strings.Contains(d, "\x00") {
		return ""
	}
	return d
}

// decodeLenient leaves broken escapes.
func decodeLenient(p string) string {
	var b strings.Builder
	for p != "" {
		if p[0] == '%' && len(p) > 2 {
			if d, err := url.PathUnescape(p[:3]); err == nil {
				b.WriteString(d)
				p = p[3:]
				continue
			}
		}
		b.WriteByte(p[0])
		p = p[1:]
	}
	return b.String()
}

// Replacers are made once: there are many paths to try.
var (
	encodedDots    = strings.NewReplacer("%2e", ".", "%2E", ".")
	encodedSlashes = strings.NewReplacer("%2f", "/", "%2F", "/")
	twiceEncoded   = strings.NewReplacer("%2f", "%252f", "%2F", "%252F")
)

func decodeDots(p string) string { return encodedDots.Replace(p) }

// decodeUnreserved decodes what RFC 3986 calls unreserved.
func decodeUnreserved(p string) string {
	return unreserved.ReplaceAllStringFunc(p, decode)
}

var unreserved = regexp.MustCompile(`%(2[dDeE]|5[fF]|7[eE]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA])`)

func decodeSlashes(p string) string { return encodedSlashes.Replace(p) }

func keepSlashes(p string) string { return twiceEncoded.Replace(p) }

func refuseSlashes(p string) string {
	if strings.Contains(strings.ToLower(p), "%2f") {
		return ""
	}
	return p
}

func backslashes(p string) string { return strings.ReplaceAll(p, `\`, "/") }

func mergeSlashes(p string) string {
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	return p
}

// resolve removes dot segments; empty ones stay, and ".." removes them like others. Above
// the root the path is refused.
func resolve(p string) string { return dots(p, false) }

// resolveClamped is resolve that stays at the root.
func resolveClamped(p string) string { return dots(p, true) }

func dots(p string, clamp bool) string {
	var kept []string
	segments := strings.Split(p, "/")[1:]
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == ".." && len(kept) == 0 && !clamp:
			return ""
		case s == "..":
			kept = kept[:max(0, len(kept)-1)]
		case s != ".":
			kept = append(kept, s)
		}
		if last && (s == "." || s == "..") {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// parameters removes what follows ";" in each segment.
func parameters(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// cleanOnly refuses what http.ServeMux redirects.
func cleanOnly(p string) string {
	if p != path.Clean(p) && p != path.Clean(p)+"/" {
		return ""
	}
	return p
}

func host(p string) string {
	if !strings.HasPrefix(p, "//") {
		return p
	}
	_, rest, _ := strings.Cut(strings.TrimLeft(p, "/"), "/")
	return "/" + rest
}

// query removes what a second server takes for a query or a fragment, where the first one
// does not encode again. A space ends the request's target.
func query(p string) string {
	p = strings.TrimRight(p, " ")
	if strings.Contains(p, " ") {
		return ""
	}
	p, _, _ = strings.Cut(p, "?")
	p, _, _ = strings.Cut(p, "#")
	return p
}

// trimEnd removes what Windows ignores at the end of a name.
func trimEnd(p string) string { return strings.TrimRight(p, ". ") }
