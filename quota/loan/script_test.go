package loan_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/test/redisserver"
)

// script is loan.lua on time that the last argument gives.
func script(t testing.TB) *redis.Script {
	t.Helper()
	source := "local TIME = tonumber(table.remove(ARGV))\n"
	for _, file := range []string{"base.lua", "log.lua"} {
		b, err := os.ReadFile("../../limiter/redisstore/lua/" + file)
		if err != nil {
			t.Fatal(err)
		}
		source += string(b)
	}
	return redis.NewScript(source + loan.Script)
}

const logKey, loansKey = "rl:{acme}:l:standard:", "rl:{acme}:b.hour:standard:"

// inRedis is a Book that loan.lua keeps.
type inRedis struct {
	*loan.Book
	client *redis.Client
	script *redis.Script
}

func (b *inRedis) do(t rapid.TB, now int64, op string, args ...any) string {
	t.Helper()
	all := append([]any{b.Store.Epoch, b.Store.Lost, b.Share, b.Terms.Window, b.Terms.Length, b.Terms.Keep(), op}, args...)
	v, err := b.script.Run(context.Background(), b.client, []string{logKey, loansKey}, append(all, now)...).Text()
	if err != nil {
		t.Fatalf("%s %v: %v", op, args, err)
	}
	return v
}

func id(i loan.ID) string { return fmt.Sprintf("%d %d", i.Epoch, i.Stamp) }

// loans reads what Redis holds, less what is over.
func (b *inRedis) loans(t rapid.TB, now int64) (l []string) {
	t.Helper()
	all, err := b.client.HGetAll(context.Background(), loansKey).Result()
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range all {
		if f := strings.Fields(v); k != "c" && number(f[2]) > now {
			l = append(l, k+" "+v)
		}
	}
	slices.Sort(l)
	return l
}

func lines(s loan.State) (l []string) {
	for kind, loans := range map[string][]loan.Loan{"l": s.Lent, "h": s.Held} {
		for _, x := range loans {
			l = append(l, fmt.Sprintf("%s%s %s %d %d %d", kind, x.Peer, id(x.ID), x.Units, x.Back, x.Until))
		}
	}
	slices.Sort(l)
	return l
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// TestScriptIsTheBook drives loan.lua and Book side by side.
func TestScriptIsTheBook(t *testing.T) {
	client, run := redisserver.Start(t, redisserver.Options{}).Client(), script(t)
	terms := loan.TermsOf(1_000_000)
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		client.FlushAll(ctx)
		model := &loan.Book{Region: "a", Terms: terms, Store: loan.Store{Epoch: 7}, Share: 5}
		b := &inRedis{model, client, run}
		now := int64(1_795_198_405_260_197)
		var log []int64
		var names []string
		peer := func(t *rapid.T) string { return rapid.SampledFrom([]string{"b", "eu-west"}).Draw(t, "peer") }
		named := func(loans []loan.Loan) loan.ID {
			ids := []loan.ID{{}, {Epoch: 7, Stamp: 3}}
			for _, l := range loans {
				ids = append(ids, l.ID)
			}
			return rapid.SampledFrom(ids).Draw(t, "id")
		}
		used := func() (n int64) {
			for _, at := range log {
				if at > now-terms.Window {
					n++
				}
			}
			return n
		}
		expect := func(got, want any) {
			t.Helper()
			if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
				t.Fatalf("script %q, book %q", g, w)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				now += rapid.OneOf(rapid.Int64Range(1, 300_000), rapid.SampledFrom([]int64{terms.Window, terms.Length, terms.Keep()})).Draw(t, "µs")
			},
			"admit": func(t *rapid.T) {
				room := model.Room(now, used())
				expect(b.do(t, now, "room"), room)
				if room > 0 {
					log = append(log, now)
					client.RPush(ctx, logKey, now)
				}
			},
			"lend": func(t *rapid.T) {
				r := loan.Request{From: peer(t), Epoch: 9, Time: 44, ID: named(model.Lent)}
				n := rapid.Int64Range(0, 6).Draw(t, "units")
				want := ""
				if g, ok := model.Lend(now, used(), n, r); ok {
					want = fmt.Sprintf("%s %d %d", id(g.ID), g.Units, map[bool]int{true: 1}[g.New])
					if g.New {
						names = append(names, id(g.ID))
					}
				}
				expect(b.do(t, now, "lend", n, r.From, id(r.ID)), want)
			},
			"accept": func(t *rapid.T) {
				g := loan.Grant{
					From: peer(t), ID: named(model.Held), Units: rapid.Int64Range(1, 6).Draw(t, "units"), New: rapid.Bool().Draw(t, "new"),
					Epoch: model.Store.Epoch - rapid.SampledFrom([]uint32{0, 0, 0, 1}).Draw(t, "behind"), Time: now - rapid.Int64Range(-1, terms.Length+1).Draw(t, "age"),
				}
				want := map[bool]int{true: 1}[model.Accept(now, g)]
				expect(b.do(t, now, "accept", g.From, id(g.ID), g.Units, map[bool]int{true: 1}[g.New], g.Epoch, g.Time), want)
			},
			"return": func(t *rapid.T) {
				n, from, i := rapid.Int64Range(0, 6).Draw(t, "units"), peer(t), named(model.Held)
				want := model.Return(now, used(), n, from, i)
				expect(b.do(t, now, "return", n, from, id(i)), want)
			},
			"returned": func(t *rapid.T) {
				n, from, i := rapid.Int64Range(0, 6).Draw(t, "units"), peer(t), named(model.Lent)
				model.Returned(now, from, i, n)
				b.do(t, now, "returned", n, from, id(i))
			},
			"recall": func(t *rapid.T) {
				n, until := rapid.Int64Range(0, 3).Draw(t, "units"), now+rapid.Int64Range(0, 1_000_000).Draw(t, "µs")
				model.SetRecall(now, n, until)
				b.do(t, now, "recall", n, until)
			},
			"epoch": func(t *rapid.T) {
				if model.Store.Epoch++; rapid.Bool().Draw(t, "lost") {
					model.Store.Lost = now
				}
			},
			"share": func(t *rapid.T) { model.Share = rapid.Int64Range(0, 9).Draw(t, "share") },
			"": func(t *rapid.T) {
				expect(b.do(t, now, "room"), model.Room(now, used()))
				if got, want := b.loans(t, now), lines(model.State); !slices.Equal(got, want) {
					t.Fatalf("script %q, book %q", got, want)
				}
			},
		})
		slices.Sort(names)
		if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
			t.Fatalf("of %d loans only %d have a name of their own", len(names), n)
		}
	})
}

// TestBytesPerLoan measures what a loan takes in Redis, with names as long as they come.
func TestBytesPerLoan(t *testing.T) {
	client, run := redisserver.Start(t, redisserver.Options{}).Client(), script(t)
	model := &loan.Book{Region: "a", Terms: loan.TermsOf(60_000_000), Store: loan.Store{Epoch: 4_000_000_000}, Share: 1_000_000}
	b := &inRedis{model, client, run}
	now := int64(1_795_198_405_260_197)
	for i := range int64(20) {
		b.do(t, now, "lend", 100_000/20, fmt.Sprintf("ap-southeast-%d", i), "0 0")
		n, err := client.MemoryUsage(context.Background(), loansKey).Result()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d loans: %d bytes", i+1, n)
		if n > 200*(i+1) {
			t.Errorf("%d loans take %d bytes", i+1, n)
		}
	}
}
