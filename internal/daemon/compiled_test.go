package daemon_test

import (
	"reflect"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/internal/daemon"
)

// TestClientsAreCompiledOnce: the compiler makes the methods of generic types again in each package that has a type in which they
// are, however deep. go-redis's client has 1,500 of them and nats-server's server 600, so what uses them names neither. What that
// saves of a cold build was never measured apart from the noise of a busy machine; go run ./test/buildcost prints the whole.
func TestClientsAreCompiledOnce(t *testing.T) {
	refused := map[reflect.Type]bool{reflect.TypeFor[redis.Client](): true, reflect.TypeFor[server.Server](): true}
	seen := map[reflect.Type]bool{}
	var walk func(at reflect.Type, way string)
	walk = func(at reflect.Type, way string) {
		if seen[at] {
			return
		}
		seen[at] = true
		if refused[at] {
			t.Errorf("%s is %s: put an interface of ours between them", way, at)
			return
		}
		switch at.Kind() {
		case reflect.Map:
			walk(at.Key(), way+" key")
			walk(at.Elem(), way+" value")
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
			walk(at.Elem(), way)
		case reflect.Struct:
			for i := range at.NumField() {
				walk(at.Field(i).Type, way+"."+at.Field(i).Name)
			}
		case reflect.Func:
			for i := range at.NumIn() {
				walk(at.In(i), way+" parameter")
			}
			for i := range at.NumOut() {
				walk(at.Out(i), way+" result")
			}
		default:
		}
		for i := range at.NumMethod() {
			walk(at.Method(i).Type, way+"."+at.Method(i).Name)
		}
		if at.Name() != "" && at.Kind() != reflect.Interface {
			for i, p := 0, reflect.PointerTo(at); i < p.NumMethod(); i++ {
				walk(p.Method(i).Type, way+"."+p.Method(i).Name)
			}
		}
	}
	walk(reflect.TypeFor[daemon.Daemon](), "Daemon")
	if len(seen) < 500 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}
