--- Refuse the changes that users may not make in their malleable jobs, with the reason.
--
-- The reconciler starts, renews and gives back the fragments, which wait held. A change from
-- elsewhere would start them outside a lease. The input is plain tables, the output a verdict. Runs
-- on Lua 5.1 to 5.4.

local M = {}

local NO_VAL16 = 65534
local NO_VAL = 4294967294
local NO_VAL64 = 1.8e19 -- 2^64-2 does not fit a double, so every number above counts as unset
local INFINITE = 4294967295

-- Slurm's error numbers. Before 23.02 a user sees only these: log_user has no effect here.
M.ACCESS_DENIED = 2002
M.JOB_HELD = 2042

local RELEASE = "fragments are released as soon as nodes are idle; you need to do nothing"
local LIMIT = "the reconciler sets it for each fragment; submit again with another --time"
local SIZE = "it belongs to the request; scancel the job and submit again with other values"
local PLACE = "the job takes nodes that are idle; submit again with --constraint or --exclude"
local PARTITION = "malleable jobs run in a preemptible partition only; submit again elsewhere "
  .. "without --malleable"
local ACCOUNT = "malleable jobs are charged to their own account; submit again without --malleable"
local GIVE_BACK = "the job gives nodes back by a requeue; leave it on"
local WAITING = "fragments start when nodes are idle; scancel the job and submit again"

--- Fields of job_desc: {name, value if unset (nil: a string), name for the user, reason}.
local REFUSED = {
  -- 22.05: a user's Nice on a held element recomputes its priority and so releases it.
  { "nice", NO_VAL, "Nice", WAITING },
  { "array_inx", nil, "ArrayTaskThrottle", WAITING },
  { "begin_time", 0, "StartTime", WAITING },
  { "dependency", nil, "Dependency", WAITING },
  { "end_time", 0, "EndTime", LIMIT },
  { "time_limit", NO_VAL, "TimeLimit", LIMIT },
  { "time_min", NO_VAL, "TimeMin", LIMIT },
  { "requeue", NO_VAL16, "Requeue", GIVE_BACK },
  { "partition", nil, "Partition", PARTITION },
  { "qos", nil, "QOS", PARTITION },
  { "reservation", nil, "ReservationName", PLACE },
  { "req_nodes", nil, "ReqNodeList", PLACE },
  { "exc_nodes", nil, "ExcNodeList", PLACE },
  { "features", nil, "Features", PLACE },
  { "prefer", nil, "Prefer", PLACE },
  { "batch_features", nil, "BatchFeatures", PLACE },
  { "contiguous", NO_VAL16, "Contiguous", PLACE },
  { "req_switch", NO_VAL, "Switches", PLACE },
  { "min_nodes", NO_VAL, "NumNodes", SIZE },
  { "max_nodes", NO_VAL, "NumNodes", SIZE },
  { "num_tasks", NO_VAL, "NumTasks", SIZE },
  { "min_cpus", NO_VAL, "NumCPUs", SIZE },
  { "max_cpus", NO_VAL, "NumCPUs", SIZE },
  { "cpus_per_task", NO_VAL16, "CPUsPerTask", SIZE },
  { "ntasks_per_node", NO_VAL16, "NtasksPerNode", SIZE },
  { "sockets_per_node", NO_VAL16, "ReqSockets", SIZE },
  { "cores_per_socket", NO_VAL16, "ReqCores", SIZE },
  { "threads_per_core", NO_VAL16, "ReqThreads", SIZE },
  { "pn_min_cpus", NO_VAL16, "MinCPUsNode", SIZE },
  { "pn_min_memory", NO_VAL64, "MinMemory", SIZE },
  { "pn_min_tmp_disk", NO_VAL, "MinTmpDiskNode", SIZE },
  { "tres_per_node", nil, "Gres", SIZE },
  { "tres_per_job", nil, "TresPerJob", SIZE },
  { "tres_per_socket", nil, "TresPerSocket", SIZE },
  { "tres_per_task", nil, "TresPerTask", SIZE },
  { "cpus_per_tres", nil, "CpusPerTres", SIZE },
  { "mem_per_tres", nil, "MemPerTres", SIZE },
  { "licenses", nil, "Licenses", SIZE },
  { "burst_buffer", nil, "BurstBuffer", SIZE },
  { "shared", NO_VAL16, "OverSubscribe", SIZE },
  { "core_spec", NO_VAL16, "CoreSpec", SIZE },
  { "reboot", NO_VAL16, "Reboot", SIZE },
  { "work_dir", nil, "WorkDir", SIZE },
}

local COMMENT = "the reconciler reads it by lines; write it without control characters"

--- Names of the fields to read from job_desc.
M.FIELDS = { "priority", "comment", "account" }
for _, rule in ipairs(REFUSED) do
  M.FIELDS[#M.FIELDS + 1] = rule[1]
end

local function is_changed(value, unset)
  if value == nil or value == unset then return false end
  return not (unset == NO_VAL64 and value >= NO_VAL64)
end

--- True if this AdminComment carries our mark.
function M.is_marked(admin_comment)
  return type(admin_comment) == "string" and admin_comment:find("malleable{", 1, true) ~= nil
end

--- Return the AdminComment `text` with the mark of `old` before it, or nil if `text` has a mark or
-- is appended. An operator's own words would otherwise take the mark's place.
function M.keep_mark(old, text)
  if text:sub(1, 2) == "+=" or M.is_marked(text) then return nil end
  local mark = old:match("malleable{[^{}]*}")
  return mark and (text == "" and mark or mark .. " " .. text)
end

-- The stages of a run that an agent reports, as in slurm_hooks/protocol/comment.py.
M.STANDINGS = { "started", "waiting", "joined", "trained", "leaving", "apart", "finished" }

local function find_words(comment)
  local standing = comment:match("^(%l+){%d+}")
  for _, known in ipairs(standing and M.STANDINGS or {}) do
    if standing == known then
      return comment:match("^%l+{%d+};h{%d+}r?") or comment:match("^%l+{%d+}")
    end
  end
  return nil
end

--- Return the Comment `text` after the words of `old` in which an agent reports its run, or nil if
-- `text` has such words, or `old` has none. Without them a tick would see a script without agents.
function M.keep_words(old, text)
  local words = find_words(old)
  if not words or find_words(text) then return nil end
  return text == "" and words or words .. ";" .. text
end

--- True if this uid may change everything: root and the policy's operators. Without a usable
-- policy, root and every uid except the owner's: Slurm lets only owners and its operators get here.
function M.is_operator(uid, owner, policy)
  if policy then return uid == 0 or policy.operators[uid] == true end
  return uid == 0 or uid ~= owner
end

local function describe(label, reason)
  return string.format("malleable job: %s cannot be changed: %s", label, reason)
end

--- Judge a change by a user without an operator's rights.
-- change: values of FIELDS; policy: as for is_operator. Returns nil if it is allowed, else a Slurm
-- error number and a list of lines for the user. Users may always change holds, names, mail and
-- single-line comments.
function M.judge(change, policy)
  local code, lines = nil, {}
  local priority = change.priority
  if is_changed(priority, NO_VAL) and priority ~= 0 then
    code = M.JOB_HELD
    lines[1] = describe(priority == INFINITE and "its hold" or "Priority", RELEASE)
  end
  for _, rule in ipairs(REFUSED) do
    if is_changed(change[rule[1]], rule[2]) then
      code = code or M.ACCESS_DENIED
      lines[#lines + 1] = describe(rule[3], rule[4])
    end
  end
  if policy and policy.account and is_changed(change.account) then
    code = code or M.ACCESS_DENIED
    lines[#lines + 1] = describe("Account", ACCOUNT)
  end
  if (change.comment or ""):find("%c") then
    code = code or M.ACCESS_DENIED
    lines[#lines + 1] = describe("Comment", COMMENT)
  end
  return code, lines
end

return M
