package redisstore

import (
	"context"
	"errors"
	"net"
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Whatever servers there are, those that decide are talked to in the same way: an option
// that one kind of client is not given would be go-redis's default there.
func TestClientsAreAlike(t *testing.T) {
	o := Options{
		Addrs: []string{"127.0.0.1:6379"}, Master: "primary", ClientName: "regiond",
		Credentials: func() (string, string) { return "", "" },
		Dial:        func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody is there") },
	}
	single, sentinel, cluster := redis.NewClient(clientOptions(o).Simple()), redis.NewFailoverClient(clientOptions(o).Failover()), clusterClient(o)
	defer single.Close()
	defer sentinel.Close()
	defer cluster.Close()
	want := reflect.ValueOf(*single.Options())
	for name, options := range map[string]*redis.Options{"sentinel": sentinel.Options(), "cluster": nodeOptions(t, cluster)} {
		got := reflect.ValueOf(*options)
		for i := range got.NumField() {
			field := got.Type().Field(i)
			switch {
			case !field.IsExported():
			case field.Name == "Addr" || field.Name == "NodeAddress": // who it is
			case field.Name == "PushNotificationProcessor": // go-redis makes it, at one time or another
			case field.Type.Kind() == reflect.Func || field.Type.Kind() == reflect.Interface:
				if got.Field(i).IsNil() != want.Field(i).IsNil() {
					t.Errorf("%s: %s is nil %v, of one server %v", name, field.Name, got.Field(i).IsNil(), want.Field(i).IsNil())
				}
			case !reflect.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()):
				t.Errorf("%s: %s is %v, of one server %v", name, field.Name, got.Field(i), want.Field(i))
			}
		}
	}
}

// nodeOptions are what a cluster client gives to the client of each node.
func nodeOptions(t *testing.T, c *redis.ClusterClient) *redis.Options {
	t.Helper()
	o := *c.Options()
	o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: o.Addrs[0]}}}}, nil
	}
	fixed := redis.NewClusterClient(&o)
	t.Cleanup(func() { fixed.Close() })
	node := must(fixed.MasterForKey(context.Background(), "key"))(t)
	return node.Options()
}
