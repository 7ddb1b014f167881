-- Checks a request against regiond, and sets variables:
--
--   txn.decision   allow | deny | invalid | away | broken
--   txn.ratelimit, txn.ratelimit_policy, txn.retry_after, txn.problem
--
-- haproxy.cfg acts on them. The check goes to the frontend "question" of
-- haproxy.cfg, which has timeouts, servers and connections as usual; the HTTP
-- client here has no connect timeout.

local question = "abns@regiond"

-- first returns a field of the answer. Values are numbered from 0 here.
local function first(answer, field)
	local values = answer.headers and answer.headers[field]
	return values and values[0]
end

-- decision returns regiond's decision. A missing answer or a 5xx is away; any other
-- status is a mistake of configuration or another server.
local function decision(answer)
	local status = answer and answer.status or 0
	if status == 200 and first(answer, "x-regiond-decision") == "allow" then
		return "allow"
	elseif status == 429 then
		return "deny"
	elseif status == 403 then
		return "invalid"
	elseif status < 100 or status >= 500 then
		return "away"
	end
	return "broken"
end

-- set sets a variable, and leaves out a value that is missing: HAProxy would write 0.
local function set(txn, name, value)
	if value then
		txn:set_var(name, value)
	end
end

core.register_action("regiond", { "http-req" }, function(txn)
	-- regiond receives what HAProxy writes, and nothing of the client's.
	local answer = core.httpclient():get({
		url = "http://regiond/v1/authz",
		dst = question,
		timeout = 1000, -- never reached: the frontend answers within its own timeouts
		headers = {
			["x-tenant"] = { txn:get_var("txn.tenant") },
			["x-forwarded-for"] = { txn.f:src() },
			["x-forwarded-method"] = { txn.f:method() },
			["x-forwarded-uri"] = { txn.f:pathq() },
		},
	})

	local result = decision(answer)
	txn:set_var("txn.decision", result)
	if result == "allow" or result == "deny" then
		set(txn, "txn.ratelimit", first(answer, "ratelimit"))
		set(txn, "txn.ratelimit_policy", first(answer, "ratelimit-policy"))
		set(txn, "txn.retry_after", first(answer, "retry-after"))
	end
	if result == "deny" or result == "invalid" then
		-- Without the line's end, which lf-string would write as %0A.
		txn:set_var("txn.problem", (answer.body:gsub("%s+$", "")))
	end
end)
