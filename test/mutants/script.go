package main

// scriptMutants are mistakes in the scripts that decide inside Redis. Their proofs run
// on a real redis-server.
func scriptMutants() []mutant {
	return []mutant{
		{
			name:   "lua-edge",
			breaks: "a window is half open: what is as old as it is outside",
			file:   "limiter/lua/log.lua",
			old:    "if e and (stamp <= 0 or stamp > TIME - l.W) then", becomes: "if e and (stamp <= 0 or stamp >= TIME - l.W) then",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-waits-for-a-unit-too-many",
			breaks: "Retry-After is tight: the cost fits when it is over, and not after the next unit",
			file:   "limiter/lua/log.lua",
			old:    "return wait(s, at(s, int(c - C - 1)) + l.W)", becomes: "return wait(s, at(s, int(c - C)) + l.W)",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-edge-of-a-count",
			breaks: "remaining counts the units inside the window, and no others",
			file:   "limiter/lua/log.lua",
			old:    "if stamp > edge then hi, above = mid, stamp else", becomes: "if stamp >= edge then hi, above = mid, stamp else",
			killers: by("limiter", "TestPrograms"),
		},
		{
			name:   "lua-numbers-by-tostring",
			breaks: "numbers leave Lua with all their digits",
			file:   "limiter/lua/base.lua",
			old:    "local function int(n) return format('%.0f', n) end", becomes: "local function int(n) return tostring(n) end",
			killers: by("limiter", "TestWindowEdge"),
		},
		{
			name:   "lua-clock-goes-back",
			breaks: "a partition's clock is never behind its newest stamp",
			file:   "limiter/lua/base.lua",
			old:    "if TIME < newest or kept > 0 and TIME < empties then", becomes: "if kept > 0 and TIME < empties then",
			killers: by("limiter", "TestClockSteps"),
		},
		{
			name:   "lua-denial-charges",
			breaks: "a denial charges nothing",
			file:   "limiter/lua/decide.lua",
			old:    "local charged = op == 'r' or op == 'c' and fits", becomes: "local charged = op == 'r' or op == 'c'",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-peek-charges",
			breaks: "a peek spends nothing",
			file:   "limiter/lua/decide.lua",
			old:    "local charged = op == 'r' or op == 'c' and fits", becomes: "local charged = op == 'r' or fits",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-written-before-all-is-checked",
			breaks: "all limits of a check are charged, or none",
			file:   "limiter/lua/decide.lua",
			old:    "    if charged then\n      k.kind.write(s, k, c)", becomes: "    if charged or op == 'c' and waits[i] == 0 then\n      k.kind.write(s, k, c)",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-cost-above-the-ceiling-looks",
			breaks: "a ceiling below the cost denies, whatever the log holds",
			file:   "limiter/lua/log.lua",
			old:    "  if c > C then return -1 end\n", becomes: "  if c > C and call('EXISTS', s.key) == 1 then return -1 end\n",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-trims-a-unit-too-many",
			breaks: "no unit that is in the window is ever forgotten",
			file:   "limiter/lua/log.lua",
			old:    "if size > k.trim then trim({ key = key, size = size, total = false }, k.trim) end", becomes: "if size >= k.trim then trim({ key = key, size = size, total = false }, k.trim - 1) end",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-previous-bucket-forgotten",
			breaks: "a limit cannot be used twice around the turn of a minute",
			file:   "limiter/lua/counters.lua",
			old:    "s.prev, s.cur = s.start == start + was and cur or 0, 0", becomes: "s.prev, s.cur = 0, 0",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-gcra-wait-rounded-down",
			breaks: "Retry-After is sound: the cost fits when it is over",
			file:   "limiter/lua/counters.lua",
			old:    "return s.now + q + ceil((r + s.frac) / l.L)", becomes: "return s.now + q + floor((r + s.frac) / l.L)",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-replay-charges",
			breaks: "an admission that is replayed is not charged again",
			file:   "limiter/lua/decide.lua",
			old:    "if earlier then return earlier end", becomes: "if earlier == 'x' then return earlier end",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-replay-for-another-request",
			breaks: "an Idempotency-Key stands for one request only",
			file:   "limiter/lua/decide.lua",
			old:    "if was ~= print then return 'x' end", becomes: "if was == nil then return 'x' end",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-denial-is-replayed",
			breaks: "only admissions are stored for an Idempotency-Key",
			file:   "limiter/lua/decide.lua",
			old:    "if charged and record then", becomes: "if record and op == 'c' then",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-denial-adds-to-the-total",
			breaks: "peers are told what was admitted, not what was asked for",
			file:   "limiter/lua/decide.lua",
			old:    "if charged then add_total(KEYS[total], k[j], c, k.ttl) end", becomes: "if op ~= 'p' then add_total(KEYS[total], k[j], c, k.ttl) end",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "lua-total-shrinks-in-its-epoch",
			breaks: "a total only grows within its epoch, also when the clock steps back",
			file:   "limiter/lua/totals.lua",
			old:    "t.epoch, t.earlier, t.bucket, t.units = t.epoch + 1, '', bucket, 0", becomes: "t.earlier, t.bucket, t.units = '', bucket, 0",
			killers: by("limiter", "TestTotalsAddUpWhenTheClockSteps"),
		},
		{
			name:   "lua-earlier-buckets-forgotten",
			breaks: "a process that restarts reads back every bucket that still counts",
			file:   "limiter/lua/totals.lua",
			old:    "t.earlier, t.bucket, t.units = pushed(t, bucket - t.bucket, l.most), bucket, 0", becomes: "t.earlier, t.bucket, t.units = '', bucket, 0",
			killers: by("limiter", "TestGlobalTotalsAreReadBack"),
		},
	}
}
