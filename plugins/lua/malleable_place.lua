--- Where a malleable job may run, in which QOS, for whose account, and how much of it.
--
-- Pure tables, as malleable_checks.lua has them: `parts` are the records of partitions by name.
-- Runs on Lua 5.1 (Debian's Slurm) to 5.4.

local M = {}

--- The partitions that a user may name: for parts of nodes all, as they run in one of their own.
local function list_partitions(request, policy)
  local names = {}
  for _, name in ipairs(policy.partitions) do
    local is_for_parts = name == policy.part_nodes
    if not is_for_parts or request and request.counted then names[#names + 1] = name end
  end
  return names
end

local function includes(list, name)
  for _, item in ipairs(list) do
    if item == name then return true end
  end
  return false
end

--- The lane among the partitions of a job, `a,b,c`: the first that is in `lanes`. And the others
-- that are not in it, as a job names them. Each is nil if there is none.
function M.split_partitions(names, lanes)
  local lane, rest = nil, {}
  for name in names:gmatch("[^,]+") do
    if not includes(lanes, name) then rest[#rest + 1] = name else lane = lane or name end
  end
  return lane, rest[1] and table.concat(rest, ",")
end

--- The partition: the user's choice, else the site's, else the default. Parts of nodes are taken
-- in one only, whichever of ours the user names.
local function choose_partition(request, job, site, policy)
  local for_parts = request and request.counted and policy.part_nodes
  local lanes = list_partitions(request, policy)
  if job.partition then
    local lane = M.split_partitions(job.partition, lanes)
    return lane and (for_parts or lane) or job.partition
  end
  return for_parts or M.split_partitions(site.partition or "", lanes) or policy.partitions[1]
end

--- The name of the partition in which Slurm puts jobs that name none; nil if there is none.
local function find_default(parts)
  for name, record in pairs(parts) do
    if record.flag_default == 1 then return name end
  end
  return nil
end

--- A core waits like any job, so it needs a partition for any jobs.
local function check_own(own, lane, request, parts)
  if not own then
    local example = find_default(parts)
    return string.format("--malleable: core=%d waits in an ordinary partition, and %s is for "
      .. "malleable jobs; write --partition=%s,%s", request.core, lane,
      example and example ~= lane and example or "NAME", lane)
  end
  local record = parts[own]
  local total = record and record.total_nodes
  if not total or request.core <= total then return nil end
  return string.format("--malleable: core=%d is more than the %d nodes of partition %s; write a "
    .. "smaller core", request.core, total, own)
end

--- Where a job runs: {lane, partition, fault}, the lane of its fragments, the partition to write,
-- and what is wrong with it. All elements of a job with a core wait where the user's ordinary jobs
-- do, and those that are not of the core are taken to the lane before they start.
function M.find(request, job, site, policy)
  if not (request and request.core) then
    local lane = choose_partition(request, job, site, policy)
    return { lane = lane, partition = lane }
  end
  local named = site.partition or job.partition -- else Slurm's default, which Slurm writes
  local lane, own = M.split_partitions(named or find_default(site.parts) or "", policy.partitions)
  lane = lane or choose_partition(request, {}, {}, policy)
  return { lane = lane, partition = named and own, own = own,
    fault = check_own(own, lane, request, site.parts) }
end

function M.check_part_nodes(request, policy)
  if not request or not request.counted or policy.part_nodes then return nil end
  return string.format("--malleable: parts of nodes are not offered here; leave unit=%s out or "
    .. "write unit=N, and count nodes", request.counted)
end

function M.check_lane(name, request, record, policy)
  local offered = list_partitions(request, policy)
  if request and not request.counted and name == policy.part_nodes then
    return string.format("--partition=%s: is for parts of nodes, for unit=gpu and unit=task; drop "
      .. "--partition or write --partition=%s", name, offered[1])
  end
  if not includes(policy.partitions, name) then
    return string.format("--partition=%s: malleable jobs run in %s; drop --partition or write "
      .. "--partition=%s", name, table.concat(offered, " or "), offered[1])
  end
  if policy.unfit[name] then
    return string.format("--partition=%s: no malleable job can run there. %s. Show this line to "
      .. "your administrator", name, policy.unfit[name])
  end
  -- Slurm shows no partition that AllowGroups closes to the user, and lets a tick move a job there.
  if request and request.core and not record then
    return string.format("--malleable: core=%d: Slurm has no partition %s for you; ask your "
      .. "administrator for access to it", request.core, name)
  end
  local total = record and record.total_nodes
  if total and request and not request.counted and request.min > total then
    return string.format("--malleable: MIN %d is more than the %d nodes of partition %s; "
      .. "write a smaller MIN", request.min, total, name)
  end
  return nil
end

--- With a QOS of the site's for malleable jobs, no other: it is what makes them yield. A core has
-- the user's own, by name or by default, and that must not be the one which yields.
function M.check_qos(name, request, site, policy)
  local has_core = request and request.core
  if has_core then name = name or site.qos or site.default_qos end
  if not policy.qos or not name then return nil end
  local is_site = name == policy.qos
  if has_core then
    return is_site and string.format("--qos=%s: lets other jobs have their nodes at once, which a "
      .. "core does not; name another with --qos", name) or nil
  end
  if is_site then return nil end
  return string.format("--qos=%s: malleable jobs have QOS %s here, which lets other jobs have "
    .. "their nodes at once; drop --qos", name, policy.qos)
end

--- With an account of the site's for malleable jobs, no other. slurmdbd keeps small letters. A core
-- is charged to the user's own.
function M.check_account(name, request, policy)
  if not policy.account or not name or name == "" then return nil end
  if request and request.core or name:lower() == policy.account:lower() then return nil end
  return string.format("--account=%s: malleable jobs are charged to account %s here; drop "
    .. "--account, and SBATCH_ACCOUNT if it is set", name, policy.account)
end

local KINDS = { { "user", "a user" }, { "account", "an account" }, { "all", "all users" } }

--- How many jobs may be submitted, each element counting as one, and whose limit that is; nil if no
-- QOS has one. Of each kind that of the partition's QOS counts before that of the job's, unless the
-- latter says otherwise. Limits of associations, and what of a limit is used, are not known here.
-- Nor is it known whether a user without a default has but one QOS, and so not `normal`.
function M.find_submit_limit(request, job, site, policy)
  local limits, place = policy.submit_limits or {}, M.find(request, job, site, policy)
  local first = (policy.part_qos or {})[place.own or place.lane]
  local second = not request.core and policy.qos or site.qos or site.default_qos or "normal"
  second = second:lower() -- slurmdbd keeps small letters
  if (policy.over_qos or {})[second] then first, second = second, first end
  local most, who
  for _, kind in ipairs(KINDS) do
    local name = limits[first] and limits[first][kind[1]] and first or second
    local limit = limits[name] and limits[name][kind[1]]
    if limit and (not most or limit < most) then
      most, who = math.max(limit, 1), string.format("QOS %s lets %s", name, kind[2])
    end
  end
  return most, who
end

return M
