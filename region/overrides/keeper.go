package overrides

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/regiond/regiond/quota"
)

// keeper is where a region keeps its overrides, as texts of quota.Override, with the last edits of each. Processes that share one
// follow its log. Safe for concurrent use.
type keeper interface {
	// read returns the overrides of tenants of one slice, "" for none.
	read(ctx context.Context, tenants ...string) (texts []string, err error)
	// swap carries out replacements, all of one slice, and reports of each whether it was. An edit is kept in the history.
	swap(ctx context.Context, edit bool, all ...replacement) (swapped []bool, err error)
	// history has the overrides that edits made, the newest first.
	history(ctx context.Context, tenant string) (texts []string, err error)
	// scan calls each with all overrides of a slice, a few at a time, and not in one order.
	scan(ctx context.Context, slice int, each func(tenant, text string)) error
	// announce appends a tenant to the log, and edits returns those after number at, and the newest number, 0 for none. A log that
	// has lost what came after at is not whole.
	announce(ctx context.Context, tenant string) error
	edits(ctx context.Context, at int64) (tenants []string, newest int64, whole bool, err error)
}

// replacement is to put text in the place of was, if that is what is kept of a tenant: an equal text of another edit is not this
// one. Both may be "", for none.
type replacement struct{ tenant, was, text string }

// keptLines are the edits that are kept and what the oldest of them has replaced.
const keptLines = quota.MaxEdits + 1

// memory is the keeper of a region that is one process without Redis. What it has ends with the process.
type memory struct {
	mu    sync.Mutex
	texts [sliceCount]map[string]string
	lines map[string][]string
}

func newMemory() *memory {
	m := &memory{lines: map[string][]string{}}
	for i := range m.texts {
		m.texts[i] = map[string]string{}
	}
	return m
}

func (m *memory) read(_ context.Context, tenants ...string) (texts []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, tenant := range tenants {
		texts = append(texts, m.texts[sliceOf(tenant)][tenant])
	}
	return texts, nil
}

func (m *memory) swap(_ context.Context, edit bool, all ...replacement) (swapped []bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range all {
		texts := m.texts[sliceOf(r.tenant)]
		matches := texts[r.tenant] == r.was
		swapped = append(swapped, matches)
		switch {
		case !matches:
			continue
		case r.text == "":
			delete(texts, r.tenant)
			delete(m.lines, r.tenant)
			continue
		}
		texts[r.tenant] = r.text
		if edit {
			lines := append([]string{r.text}, m.lines[r.tenant]...)
			m.lines[r.tenant] = lines[:min(len(lines), keptLines)]
		}
	}
	return swapped, nil
}

func (m *memory) history(_ context.Context, tenant string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lines[tenant]), nil
}

func (m *memory) scan(_ context.Context, slice int, each func(tenant, text string)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for tenant, text := range m.texts[slice] {
		each(tenant, text)
	}
	return nil
}

// announce does nothing: there is no other process.
func (m *memory) announce(context.Context, string) error { return nil }

func (m *memory) edits(context.Context, int64) ([]string, int64, bool, error) {
	return nil, 0, true, nil
}

// Eval runs a script on the server that holds a key, as redisstore.Store.Eval.
type Eval = func(ctx context.Context, script, key string, args ...any) (any, error)

// redis keeps overrides in a region's Redis:
//
//	rl:overrides:{0…255}           hash  tenant → text
//	rl:overrides:{0…255}:history   hash  tenant → texts of its edits, a line each, the newest first
//	rl:overrides:log               sorted set of the last edits, "number tenant" by number
type redis func(ctx context.Context, script, key string, args ...any) (any, error)

const (
	overridesKey = "rl:overrides:"
	logKey       = overridesKey + "log"
	// logLength is how many edits the log has: of more between two looks at it everything is read again.
	logLength = 1024
	// scanStep is how many overrides are scanned at once, and nameStep how many are read or replaced by name: 0.1 ms to 0.2 ms of
	// Redis's time.
	scanStep = 128
	nameStep = 64
)

func sliceKey(slice int) string { return fmt.Sprintf("%s{%d}", overridesKey, slice) }

const (
	readScript = `local texts = {}
for i, tenant in ipairs(ARGV) do
  texts[i] = redis.call('HGET', KEYS[1], tenant) or ''
end
return texts`

	swapScript = `local history, swapped = KEYS[1] .. ':history', {}
for i = 2, #ARGV, 3 do
  local tenant, was, text = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local matches = (redis.call('HGET', KEYS[1], tenant) or '') == was
  swapped[#swapped + 1] = matches and 1 or 0
  if matches and text == '' then
    redis.call('HDEL', KEYS[1], tenant)
    redis.call('HDEL', history, tenant)
  elseif matches then
    redis.call('HSET', KEYS[1], tenant, text)
    if ARGV[1] ~= '0' then
      local lines, n = { text }, 1
      for line in string.gmatch(redis.call('HGET', history, tenant) or '', '[^\n]+') do
        if n == tonumber(ARGV[1]) then break end
        n = n + 1
        lines[n] = line
      end
      redis.call('HSET', history, tenant, table.concat(lines, '\n'))
    end
  end
end
return swapped`

	historyScript = `return redis.call('HGET', KEYS[1] .. ':history', ARGV[1]) or ''`

	scanScript = `return redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])`

	// The number of an edit is TIME, so that a log that was lost does not begin with numbers that are known.
	announceScript = `local t, last = redis.call('TIME'), redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local number = string.format('%.0f', math.max(t[1] * 1000000 + t[2], (last[2] or 0) + 1))
redis.call('ZADD', KEYS[1], number, number .. ' ' .. ARGV[1])
return redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[2])`

	editsScript = `return redis.call('ZRANGE', KEYS[1], ARGV[1], '+inf', 'BYSCORE')`
)

// list calls a script that replies with a list of so many.
func (r redis) list(ctx context.Context, n int, script, tenant string, args ...any) ([]any, error) {
	reply, err := r(ctx, script, sliceKey(sliceOf(tenant)), args...)
	if err != nil {
		return nil, err
	}
	if all, ok := reply.([]any); ok && len(all) == n {
		return all, nil
	}
	return nil, fmt.Errorf("unexpected reply %.80q", fmt.Sprint(reply))
}

func (r redis) read(ctx context.Context, tenants ...string) (texts []string, err error) {
	for part := range slices.Chunk(tenants, nameStep) {
		args := make([]any, len(part))
		for i, tenant := range part {
			args[i] = tenant
		}
		all, err := r.list(ctx, len(part), readScript, part[0], args...)
		if err != nil {
			return nil, err
		}
		for _, reply := range all {
			text, _ := reply.(string)
			texts = append(texts, text)
		}
	}
	return texts, nil
}

func (r redis) swap(ctx context.Context, edit bool, all ...replacement) (swapped []bool, err error) {
	lines := 0
	if edit {
		lines = keptLines
	}
	for part := range slices.Chunk(all, nameStep) {
		args := []any{lines}
		for _, p := range part {
			args = append(args, p.tenant, p.was, p.text)
		}
		replies, err := r.list(ctx, len(part), swapScript, part[0].tenant, args...)
		if err != nil {
			return nil, err
		}
		for _, reply := range replies {
			swapped = append(swapped, reply == int64(1))
		}
	}
	return swapped, nil
}

func (r redis) history(ctx context.Context, tenant string) ([]string, error) {
	reply, err := r(ctx, historyScript, sliceKey(sliceOf(tenant)), tenant)
	if text, _ := reply.(string); text != "" {
		return strings.Split(text, "\n"), err
	}
	return nil, err
}

func (r redis) scan(ctx context.Context, slice int, each func(tenant, text string)) error {
	for cursor := "0"; ; {
		reply, err := r(ctx, scanScript, sliceKey(slice), cursor, scanStep)
		if err != nil {
			return err
		}
		parts, _ := reply.([]any)
		if len(parts) != 2 {
			return fmt.Errorf("unexpected reply %.80q", fmt.Sprint(reply))
		}
		pairs, _ := parts[1].([]any)
		for i := 0; i+1 < len(pairs); i += 2 {
			tenant, _ := pairs[i].(string)
			text, _ := pairs[i+1].(string)
			each(tenant, text)
		}
		if cursor, _ = parts[0].(string); cursor == "0" || cursor == "" {
			return nil
		}
	}
}

func (r redis) announce(ctx context.Context, tenant string) error {
	_, err := r(ctx, announceScript, logKey, tenant, logLength)
	return err
}

func (r redis) edits(ctx context.Context, at int64) (tenants []string, newest int64, whole bool, err error) {
	reply, err := r(ctx, editsScript, logKey, at)
	if err != nil {
		return nil, 0, false, err
	}
	entries, _ := reply.([]any)
	newest, whole = 0, at == 0 && len(entries) < logLength
	for _, e := range entries {
		text, _ := e.(string)
		number, tenant, _ := strings.Cut(text, " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || quota.ValidID(tenant) != nil {
			return nil, 0, false, fmt.Errorf("the key %s holds no log of edits: %.80q", logKey, text)
		}
		if newest = n; n == at {
			whole = true
		} else {
			tenants = append(tenants, tenant)
		}
	}
	return tenants, newest, whole, nil
}
