--- Find and check the partition, QOS, account and limit on fragments of a malleable job.
--
-- Pure tables, as malleable_checks.lua has them: `parts` are the records of partitions by name.
-- Runs on Lua 5.1 (Debian's Slurm) to 5.4.

local M = {}

--- The partitions that a user may name; the partition for parts of nodes only for such a job.
local function list_partitions(request, policy)
  local names = {}
  for _, name in ipairs(policy.partitions) do
    local is_for_parts = name == policy.part_nodes
    if not is_for_parts or request and request.counted then names[#names + 1] = name end
  end
  return names
end

local UNSET = { [4294967294] = true, [65534] = true, [0] = true } -- NO_VAL, NO_VAL16

--- A number that the user gave, else nil.
local function read(value)
  return not UNSET[value] and value or nil
end

local function includes(list, name)
  for _, item in ipairs(list) do
    if item == name then return true end
  end
  return false
end

--- Split the partitions of a job, `a,b,c`: the first that is in `lanes`, and the list of those that
-- are not in it. Each is nil if there is no such partition.
function M.split_partitions(names, lanes)
  local lane, rest = nil, {}
  for name in names:gmatch("[^,]+") do
    if not includes(lanes, name) then rest[#rest + 1] = name else lane = lane or name end
  end
  return lane, rest[1] and table.concat(rest, ",")
end

--- The partition: the user's choice, else the site's, else the default. Jobs on parts of nodes run
-- in a single lane, whichever lane the user names.
local function choose_partition(request, job, site, policy)
  local for_parts = request and request.counted and policy.part_nodes
  local lanes = list_partitions(request, policy)
  if job.partition then
    local lane = M.split_partitions(job.partition, lanes)
    return lane and (for_parts or lane) or job.partition
  end
  return for_parts or M.split_partitions(site.partition or "", lanes) or policy.partitions[1]
end

--- The name of Slurm's default partition; nil if it has no default.
local function find_default(parts)
  for name, record in pairs(parts) do
    if record.flag_default == 1 then return name end
  end
  return nil
end

--- A core waits like any job, so it needs a partition for ordinary jobs.
local function check_own(own, lane, request, parts)
  if not own then
    local example = find_default(parts)
    return string.format("--malleable: core=%d waits in an ordinary partition, and %s is for "
      .. "malleable jobs; write --partition=%s,%s", request.core, lane,
      example and example ~= lane and example or "NAME", lane)
  end
  local record = parts[own]
  local total = record and record.total_nodes
  if not total or request.counted or request.core <= total then return nil end
  return string.format("--malleable: core=%d is more than the %d nodes of partition %s; write a "
    .. "smaller core", request.core, total, own)
end

--- Return {lane, partition, fault}: the lane of the job's fragments, the partition to write, and a
-- fault. All elements of a job with a core wait where the user's ordinary jobs wait. The reconciler
-- moves the elements outside the core to the lane before they start.
function M.find(request, job, site, policy)
  if not (request and request.core) then
    local lane = choose_partition(request, job, site, policy)
    return { lane = lane, partition = lane }
  end
  local named = site.partition or job.partition -- else Slurm's default, which Slurm writes
  local lane, own = M.split_partitions(named or find_default(site.parts) or "", policy.partitions)
  own = own or policy.by_qos and lane -- there a QOS makes a job ordinary
  lane = choose_partition(request, { partition = lane }, {}, policy)
  return { lane = lane, partition = named and own, own = own,
    fault = check_own(own, lane, request, site.parts) }
end

--- The nodes of the lane of the job's fragments; nil if they are unknown.
function M.count_nodes(request, job, site, policy)
  local record = site.parts[M.find(request, job, site, policy).lane]
  return record and record.total_nodes
end

function M.check_part_nodes(request, policy)
  local is_offered = policy.part_nodes or policy.parts_qos
  if not request or not request.counted or is_offered then return nil end
  return string.format("--malleable: parts of nodes are not offered here; leave unit=%s out or "
    .. "write unit=N, and count nodes", request.counted)
end

function M.check_lane(name, request, record, policy)
  local offered = list_partitions(request, policy)
  if request and not request.counted and name == policy.part_nodes then
    return string.format("--partition=%s: is only for parts of nodes (unit=gpu, unit=task); drop "
      .. "--partition or write --partition=%s", name, offered[1])
  end
  if not includes(policy.partitions, name) then
    return string.format("--partition=%s: malleable jobs run in %s; drop --partition or write "
      .. "--partition=%s", name, table.concat(offered, " or "), offered[1])
  end
  local why = policy.unfit[name] or request and request.counted and policy.unfit[policy.parts_qos]
  if why then
    return string.format("--partition=%s: malleable jobs cannot run there. %s. Show this line to "
      .. "your administrator", name, why)
  end
  -- Slurm hides a partition that AllowGroups closes to the user, yet a tick may move a job there.
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

--- The nodes that the user's options ask for must exist: Slurm does not compare the needs of a job
-- that is held. `gpus` are the GPUs of each node, {kind, count}, or nil. policy.largest has, by
-- partition, the most CPUs and MiB of a node, if all its nodes were known.
function M.check_needs(job, gpus, lane, policy)
  local most, faults = (policy.largest or {})[lane], {}
  if not most then return faults end
  local function compare(option, asked, largest, unit, each)
    if not asked or asked * each <= largest then return end
    faults[#faults + 1] = string.format("--%s%d%s: is more than any node of partition %s has; "
      .. "write --%s%d%s or less", option, asked, unit, lane, option, math.floor(largest / each),
      unit)
  end
  local cpus = read(job.cpus_per_task)
  compare("cpus-per-task=", cpus, most.cpus, "", 1)
  compare("mem=", read(job.min_mem_per_node), most.memory, "M", 1)
  compare("mem-per-cpu=", read(job.min_mem_per_cpu), most.memory, "M", cpus or 1)
  if gpus then
    local name = gpus.kind == "" and "gpu" or "gpu:" .. gpus.kind
    local counts = ((policy.gpus or {})[lane] or {})[name] or {}
    if #counts > 0 then
      compare("gres=" .. name .. ":", gpus.count, counts[#counts], "", 1)
    else
      faults[#faults + 1] = string.format("--gres=%s: no node of partition %s has such a GPU; "
        .. "drop the option", name, lane)
    end
  end
  return faults
end

--- If the site names the users of malleable jobs, refuse every other user.
function M.check_user(user, policy)
  if not policy.users or policy.users[user] then return nil end
  return "--malleable: malleable jobs are for some users only here; submit without --malleable, or "
    .. "ask your administrator to write your name into users in the section [site] of "
    .. "malleable.toml"
end

--- If the site has a QOS for malleable jobs, refuse every other QOS: that QOS makes them yield. A
-- core has the user's own QOS, by name or by default, and refuses the QOS that yields.
function M.check_qos(name, request, site, policy)
  local has_core = request and request.core
  if has_core then name = name or site.qos or site.default_qos end
  if not policy.qos or not name then return nil end
  local is_site = name == policy.qos or name == policy.parts_qos
  if has_core then
    return is_site and string.format("--qos=%s: is for malleable jobs, whose nodes other jobs may "
      .. "take, but a core keeps its nodes; write --qos=NAME with another QOS", name) or nil
  end
  if is_site then return nil end
  return string.format("--qos=%s: malleable jobs have QOS %s here, which lets other jobs take "
    .. "their nodes at once; drop --qos", name, policy.qos)
end

--- If the site has an account for malleable jobs, refuse every other account. slurmdbd stores small
-- letters. A core is charged to the user's own account.
function M.check_account(name, request, policy)
  if not policy.account or not name or name == "" then return nil end
  if request and request.core or name:lower() == policy.account:lower() then return nil end
  return string.format("--account=%s: malleable jobs are charged to account %s here; drop "
    .. "--account, and SBATCH_ACCOUNT if it is set", name, policy.account)
end

--- The QOS of malleable jobs, which a site may have twice: parts of nodes have the second.
function M.find_qos(request, policy)
  return request.counted and policy.parts_qos or policy.qos
end

local KINDS = { { "user", "a user" }, { "account", "an account" }, { "all", "all users" } }

--- The number of jobs that the user may submit, each element counted, and the limit's owner; nil if
-- no QOS has a limit. For each kind the limit of the partition's QOS comes before the limit of the
-- job's QOS, unless the job's QOS has OverPartQOS. Lua does not know limits of associations, how
-- much of a limit is used, or whether a user without a default QOS has `normal`.
function M.find_submit_limit(request, job, site, policy)
  local limits, place = policy.submit_limits or {}, M.find(request, job, site, policy)
  local first = (policy.part_qos or {})[place.own or place.lane]
  local second = not request.core and M.find_qos(request, policy) or site.qos or site.default_qos
    or "normal"
  second = second:lower() -- slurmdbd keeps small letters
  if (policy.over_qos or {})[second] then first, second = second, first end
  local most, owner
  for _, kind in ipairs(KINDS) do
    local name = limits[first] and limits[first][kind[1]] and first or second
    local limit = limits[name] and limits[name][kind[1]]
    if limit and (not most or limit < most) then
      most, owner = math.max(limit, 1), string.format("QOS %s lets %s", name, kind[2])
    end
  end
  return most, owner
end

return M
