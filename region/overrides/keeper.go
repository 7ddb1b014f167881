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

// keeper is where a region keeps its overrides, as texts of quota.Override, with the last edits of each. Safe for concurrent use.
type keeper interface {
	// read returns the override of a tenant, "" for none.
	read(ctx context.Context, tenant string) (text string, err error)
	// swap replaces was by text, if that is what is kept, and reports whether it was: an equal text of another edit is not this one.
	// Both may be "". An edit is kept in the history.
	swap(ctx context.Context, tenant, was, text string, edit bool) (swapped bool, err error)
	// history has the overrides that edits made, the newest first.
	history(ctx context.Context, tenant string) (texts []string, err error)
}

// shared is a keeper for several processes. They follow its log.
type shared interface {
	keeper
	// scan calls each with all overrides of a slice, a few at a time, and not in one order.
	scan(ctx context.Context, slice int, each func(tenant, text string)) error
	// announce appends a tenant to the log, and edits returns those after number at, and the newest number, 0 for none. A log that
	// has lost what came after at is not whole.
	announce(ctx context.Context, tenant string) error
	edits(ctx context.Context, at int64) (tenants []string, newest int64, whole bool, err error)
}

// keptLines are the edits that are kept and what the oldest of them has replaced.
const keptLines = quota.MaxEdits + 1

// memory is the keeper of a region that is one process without Redis. What it has ends with the process.
type memory struct {
	mu    sync.Mutex
	texts map[string]string
	lines map[string][]string
}

func (m *memory) read(_ context.Context, tenant string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.texts[tenant], nil
}

func (m *memory) swap(_ context.Context, tenant, was, text string, edit bool) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.texts[tenant] != was:
		return false, nil
	case text == "":
		delete(m.texts, tenant)
		delete(m.lines, tenant)
		return true, nil
	}
	m.texts[tenant] = text
	if edit {
		lines := append([]string{text}, m.lines[tenant]...)
		m.lines[tenant] = lines[:min(len(lines), keptLines)]
	}
	return true, nil
}

func (m *memory) history(_ context.Context, tenant string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lines[tenant]), nil
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
	// scanStep is how many overrides are read at once: about 0.2 ms of Redis's time.
	scanStep = 500
)

func sliceKey(slice int) string { return fmt.Sprintf("%s{%d}", overridesKey, slice) }

const (
	readScript = `return redis.call('HGET', KEYS[1], ARGV[1]) or ''`

	swapScript = `local kept = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local history = KEYS[1] .. ':history'
if kept ~= ARGV[2] then return '' end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HDEL', history, ARGV[1])
  return 'swapped'
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if ARGV[4] ~= '0' then
  local lines, n = { ARGV[3] }, 1
  for line in string.gmatch(redis.call('HGET', history, ARGV[1]) or '', '[^\n]+') do
    if n == tonumber(ARGV[4]) then break end
    n = n + 1
    lines[n] = line
  end
  redis.call('HSET', history, ARGV[1], table.concat(lines, '\n'))
end
return 'swapped'`

	historyScript = `return redis.call('HGET', KEYS[1] .. ':history', ARGV[1]) or ''`

	scanScript = `return redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])`

	// The number of an edit is TIME, so that a log that was lost does not begin with numbers that are known.
	announceScript = `local t, last = redis.call('TIME'), redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local number = string.format('%.0f', math.max(t[1] * 1000000 + t[2], (last[2] or 0) + 1))
redis.call('ZADD', KEYS[1], number, number .. ' ' .. ARGV[1])
return redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[2])`

	editsScript = `return redis.call('ZRANGE', KEYS[1], ARGV[1], '+inf', 'BYSCORE')`
)

func (r redis) text(ctx context.Context, script, tenant string, args ...any) (string, error) {
	reply, err := r(ctx, script, sliceKey(sliceOf(tenant)), append([]any{tenant}, args...)...)
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("unexpected reply %.80q", fmt.Sprint(reply))
	}
	return text, nil
}

func (r redis) read(ctx context.Context, tenant string) (string, error) {
	return r.text(ctx, readScript, tenant)
}

func (r redis) swap(ctx context.Context, tenant, was, text string, edit bool) (bool, error) {
	lines := 0
	if edit {
		lines = keptLines
	}
	reply, err := r.text(ctx, swapScript, tenant, was, text, lines)
	return reply == "swapped", err
}

func (r redis) history(ctx context.Context, tenant string) ([]string, error) {
	text, err := r.text(ctx, historyScript, tenant)
	if text == "" {
		return nil, err
	}
	return strings.Split(text, "\n"), nil
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
