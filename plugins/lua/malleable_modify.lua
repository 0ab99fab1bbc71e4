--- What users may not change in their malleable jobs, and why.
--
-- Fragments wait held and are started, renewed and given back by the reconciler; changes from
-- elsewhere would start them outside a lease. Plain tables in, a verdict out. Runs on Lua 5.1 to
-- 5.4.

local M = {}

local NO_VAL16 = 65534
local NO_VAL = 4294967294
local NO_VAL64 = 1.8e19 -- 2^64-2 does not fit a double; anything above counts as unset
local INFINITE = 4294967295

-- Slurm's error numbers: all that a user sees before 23.02, where log_user has no effect here.
M.ACCESS_DENIED = 2002
M.JOB_HELD = 2042

local RELEASE = "fragments are released as soon as nodes are left over; there is nothing to do"
local LEASE = "leases are set and renewed for you; submit again with another --time"
local SIZE = "it belongs to the request; scancel the job and submit again with other values"
local PLACE = "nodes are chosen among those left over; submit again with --constraint or --exclude"
local PARTITION = "malleable jobs stay in a preemptible partition; submit again elsewhere without "
  .. "--malleable"
local ACCOUNT = "malleable jobs are charged to an account of their own; submit again without "
  .. "--malleable"
local GIVE_BACK = "nodes are given back by requeueing; leave it on"
local WAITING = "when fragments start is decided by what is left over; scancel and submit again"

--- Fields of job_desc: {name, value if unset (nil: a string), name for the user, what to do}.
local REFUSED = {
  -- 22.05: a user's Nice on a held element recomputes its priority and so releases it.
  { "nice", NO_VAL, "Nice", WAITING },
  { "array_inx", nil, "ArrayTaskThrottle", WAITING },
  { "begin_time", 0, "StartTime", WAITING },
  { "dependency", nil, "Dependency", WAITING },
  { "end_time", 0, "EndTime", LEASE },
  { "time_limit", NO_VAL, "TimeLimit", LEASE },
  { "time_min", NO_VAL, "TimeMin", LEASE },
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

local COMMENT = "comments are read by lines; write it without line breaks and control characters"

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

--- True if this uid may change everything: root and the policy's operators. Without a usable
-- policy, root and anyone but the owner: besides owners, only Slurm's operators get this far.
function M.is_operator(uid, owner, policy)
  if policy then return uid == 0 or policy.operators[uid] == true end
  return uid == 0 or uid ~= owner
end

local function describe(label, reason)
  return string.format("malleable job: %s cannot be changed: %s", label, reason)
end

--- Judge one change by somebody who is not an operator.
-- change: values of FIELDS; policy: as for is_operator. Returns nil if it is allowed, else a Slurm
-- error number and a list of lines for the user. Holds, names, mail and single-line comments are
-- always allowed.
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
