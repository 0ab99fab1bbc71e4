--- Check the request, MIN-MAX with its keys, against the policy.
--
-- Sizes count nodes. With unit=gpu or unit=2gpu they count GPUs, with unit=task tasks, and
-- fragments take parts of nodes. malleable_text.lua reads the text. It comes from the submit host,
-- so this module trusts no part of it. malleable_checks.lua checks the job around the request. Runs
-- on Lua 5.1 (Debian's Slurm) to 5.4.

local M = {}

local own_dir = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local words = dofile(own_dir .. "malleable_text.lua")
local spell, MAX_COUNT = words.spell, words.MAX_COUNT
local COUNTS = { "max_fragments", "max_nodes", "max_array_size", "lease_s", "hole_s", "notice_s" }

local function is_count(value)
  return type(value) == "number" and value >= 1 and value % 1 == 0
end

local TRAITS = { gang = true, rounds = true, torchrun = true, pool = true }

--- True for words like `gang+rounds`, each once, as the plugin reads them.
local function are_traits(text)
  if type(text) ~= "string" or #text > 64 or text == "" then return false end
  local seen = {}
  for word in (text .. "+"):gmatch("([^+]*)%+") do
    if not TRAITS[word] or seen[word] then return false end
    seen[word] = true
  end
  return true
end

--- The engines of the policy, sorted, for a message; with `trait`, the engines that have it.
local function list_engines(engines, trait)
  local names = {}
  for name, traits in pairs(engines) do
    if not trait or traits:find(trait, 1, true) then names[#names + 1] = tostring(name) end
  end
  table.sort(names)
  return table.concat(names, " or engine=")
end

--- True if `gpus` of a policy has lists of numbers by partition and kind.
local function are_gpus(gpus)
  for _, kinds in pairs(gpus) do
    if type(kinds) ~= "table" then return false end
    for _, counts in pairs(kinds) do
      if type(counts) ~= "table" then return false end
      for _, count in pairs(counts) do
        if type(count) ~= "number" then return false end
      end
    end
  end
  return true
end

--- Return the faults of the policy table that `malleable render lua` writes, an empty list if it is
-- valid.
function M.check_policy(policy)
  if type(policy) ~= "table" then return { "the policy file does not return a table" } end
  local faults = {}
  for _, key in ipairs(COUNTS) do
    if not is_count(policy[key]) then
      faults[#faults + 1] = key .. " is not a whole number of at least 1 (is the file older than "
        .. "the package? run `malleable render lua` again)"
    end
  end
  for _, key in ipairs({ "partitions", "unfit", "operators", "engines" }) do
    if type(policy[key]) ~= "table" then faults[#faults + 1] = key .. " is not a table" end
  end
  if policy.foreign ~= nil and type(policy.foreign) ~= "table" then
    faults[#faults + 1] = "foreign is not a table"
  end
  for name, traits in pairs(type(policy.engines) == "table" and policy.engines or {}) do
    if not are_traits(traits) then
      faults[#faults + 1] = "engine " .. tostring(name) .. " has no traits (is the file older than "
        .. "the package? run `malleable render lua` again)"
    end
  end
  if policy.launchers ~= nil and type(policy.launchers) ~= "table" then
    faults[#faults + 1] = "launchers is not a table"
  end
  if policy.max_workers ~= nil and not is_count(policy.max_workers) then
    faults[#faults + 1] = "max_workers is not a whole number of at least 1"
  end
  for _, key in ipairs({ "submit_limits", "part_qos", "over_qos", "gpus", "largest", "users" }) do
    if policy[key] ~= nil and type(policy[key]) ~= "table" then
      faults[#faults + 1] = key .. " is not a table"
    end
  end
  if type(policy.gpus) == "table" and not are_gpus(policy.gpus) then
    faults[#faults + 1] = "gpus is not a list of numbers by partition and kind"
  end
  for _, key in ipairs({ "qos", "account", "part_nodes", "parts_qos" }) do
    local name = policy[key]
    if name ~= nil and (type(name) ~= "string" or name == "") then
      faults[#faults + 1] = key .. " is not a name"
    end
  end
  if type(policy.partitions) == "table" and type(policy.partitions[1]) ~= "string" then
    faults[#faults + 1] = "partitions names no partition"
  end
  return faults
end

--- True if its engine is a pool, whose workers are independent: MIN may be 0.
local function is_pool(request, policy)
  local traits = policy.engines[request.engine]
  return traits ~= nil and traits:find("pool", 1, true) ~= nil
end

--- The largest number of fragments of this job, and the name of the limit.
local function limit_fragments(request, policy)
  local limit, name = policy.max_fragments, "max_fragments"
  if (request.unit == 1 or request.counted) and is_pool(request, policy) and policy.max_workers then
    limit, name = policy.max_workers, "max_workers"
  end
  if policy.max_array_size < limit then
    limit, name = policy.max_array_size, "Slurm's MaxArraySize"
  end
  return limit, name
end

--- The most nodes, GPUs or tasks that a job may have, the word for them, and the limit's name. Each
-- GPU and each task is a worker.
local function limit_size(request, policy)
  if not request.counted then return policy.max_nodes, "nodes", "max_nodes" end
  local noun = request.counted == "gpu" and "GPUs" or "tasks"
  if policy.max_workers then return policy.max_workers, noun, "max_workers" end
  return policy.max_nodes, noun, "max_nodes"
end

--- MIN-MAX, reduced to the site's limits for this unit.
local function spell_largest(request, policy)
  local unit = request.unit
  local most = math.floor(limit_size(request, policy) / unit)
  if not request.counted then most = math.min(limit_fragments(request, policy), most) end
  local largest = most * unit
  local least = is_pool(request, policy) and request.min == 0 and 0 or 1
  local min = math.max(math.floor(math.min(request.min, largest) / unit), least) * unit
  return spell(min, math.min(largest, math.max(request.max, unit)), request)
end

--- Only a pool may have MIN 0. An engine that the policy does not list may be a pool.
local function check_min(request, policy)
  local is_known = policy.engines[request.engine]
  if request.min > 0 or not is_known or is_pool(request, policy) then return nil end
  local unit = request.unit
  local pools = list_engines(policy.engines, "pool")
  return string.format("--malleable: only pools%s may have MIN 0%s; with engine=%s write %s",
    pools == "" and "" or " (engine=" .. pools .. ")",
    pools == "" and ", and pools are not offered here" or "", request.engine,
    spell_largest(setmetatable({ min = unit, max = math.floor(request.max / unit) * unit },
      { __index = request }), policy))
end

local function check_range(request, policy)
  local min, max, unit = request.min, request.max, request.unit
  if max < 1 or unit < 1 or max > MAX_COUNT then
    local _, noun = limit_size(request, policy)
    return string.format("--malleable: MIN, MAX and unit count %s from 1 to %d; "
      .. "write for example %s", noun, MAX_COUNT, spell_largest({ min = 1, max = max, unit = 1,
      counted = request.counted, engine = "torchrun" }, policy))
  end
  if min > max then
    return string.format("--malleable: MIN %d is larger than MAX %d; write %s", min, max,
      spell(max, min, request))
  end
  local most, noun, name = limit_size(request, policy)
  if unit > most then
    return string.format("--malleable: unit %d is more than the %d %s a job may have here "
      .. "(%s); write a smaller unit", unit, most, noun, name)
  end
  local fault = check_min(request, policy)
  if fault then return fault end
  if max > most then
    return string.format("--malleable: MAX %d is more than the %d %s a job may have here "
      .. "(%s); write %s", max, most, noun, name, spell_largest(request, policy))
  end
  return nil
end

local function check_unit(request)
  local min, max, unit = request.min, request.max, request.unit
  if min % unit == 0 and max % unit == 0 then return nil end
  local up, down = math.ceil(min / unit) * unit, math.max(math.floor(max / unit), 1) * unit
  return string.format("--malleable: MIN %d and MAX %d must be multiples of unit %d; write %s",
    min, max, unit, spell(math.min(up, down), down, request))
end

--- Smallest unit with which MIN-MAX fits into `limit` fragments, or nil.
local function find_unit(request, limit)
  for count = limit, 1, -1 do
    local unit = request.max / count
    if unit % 1 == 0 and request.min % unit == 0 then return unit end
  end
  return nil
end

--- ` or ` and the request with a larger unit if that helps, else an empty text. With a larger unit
-- the script starts once for several nodes, and only srun uses them all.
local function spell_with_unit(request, limit)
  local unit = find_unit(request, limit)
  local is_plain = not (request.core or request.sizes or request.prefer)
  if not unit or not is_plain or not (request.launch or request.unit > 1) then return "" end
  return " or " .. spell(request.min, request.max,
    { unit = unit, engine = request.engine, launch = request.launch })
end

--- Fragments on parts of nodes can be larger, so for them the limit is not a fault.
local function check_fragments(request, policy)
  if request.counted then return nil end
  local limit, name = limit_fragments(request, policy)
  local count = request.max / request.unit
  if count <= limit then return nil end
  return string.format("--malleable: MAX %d needs %d fragments, and a job may have %d here (%s); "
    .. "write %s%s", request.max, count, limit, name, spell_largest(request, policy),
    spell_with_unit(request, limit))
end

--- Refuse a request whose MIN or core needs more fragments than the user may submit.
local function refuse_cut(request, most, limit)
  local name, least = "MIN ", request.min
  if request.counted or (request.core or 0) > least then name, least = "core=", request.core end
  local largest = most * request.unit
  return string.format("--malleable: %s%d needs %d fragments, and %s submit %d job%s; write %s%s",
    name, least, least / request.unit, limit, most, most == 1 and "" or "s",
    spell(math.min(request.min, largest), largest, request), spell_with_unit(request, most))
end

--- Cut an accepted request to the `most` jobs that may be submitted; `most` is nil without a limit.
-- limit: names its owner, as in `QOS a lets a user`. Returns a fault, or nil and a note.
-- Fragments that are parts of nodes can be larger instead, so their MAX stays.
function M.cut(request, most, limit)
  if not most or request.fragments <= most then return nil end
  local largest, change = most * request.unit
  local least = math.max(request.counted and 0 or request.min, request.core or 0)
  if least > largest then
    return refuse_cut(request, most, limit)
  elseif request.counted then
    change = string.format("the job has %d fragment%s instead of %d", most,
      most == 1 and "" or "s", request.fragments)
    request.fragments = most
  else
    local max = request.max
    words.cut(request, largest)
    change = string.format("MAX %d is cut to %d", max, request.max)
    request.fragments, request.text = request.max / request.unit, words.write(request)
  end
  return nil, string.format("note: %s: %s submit %d job%s, and each fragment counts as a job",
    change, limit, most, most == 1 and "" or "s")
end

--- Engines that cannot use fragments of different sizes.
local ALIKE = { torchft = true, tensorflow = true }

local function check_engine(request, policy)
  if policy.engines[request.engine] then
    if not request.counted or not ALIKE[request.engine] then return nil end
    return string.format("--malleable: engine=%s needs fragments of equal size; leave unit=%s out "
      .. "and count nodes", request.engine, request.counted)
  end
  return string.format("--malleable: engine %s is not offered here; write engine=%s",
    request.engine, list_engines(policy.engines))
end

--- The number of fragments of an accepted request. A gang has at most a single part of each node
-- of its lane beside its core, a pool any number. `count_nodes` as in `read`.
local function count_fragments(request, policy, count_nodes)
  local count, core = request.max / request.unit, (request.core or 0) / request.unit
  if not request.counted then return count end
  local nodes = count_nodes and not is_pool(request, policy) and count_nodes(request)
  if nodes then count = math.min(count, core + math.max(nodes, 1)) end
  return math.min(count, (limit_fragments(request, policy)))
end

--- A pool has any number of workers from MIN to MAX.
local function check_pool(request, policy)
  if not request.sizes or not is_pool(request, policy) then return nil end
  local plain = setmetatable({ sizes = false }, { __index = request })
  return string.format("--malleable: sizes are for fragments that train together, and a pool may "
    .. "have any number of workers; write %s", spell(request.min, request.max, plain))
end

--- Parse a request and check it against the policy.
-- count_nodes: a function that returns the nodes of a request's lane, nil if unknown.
-- Returns the request and a list of all faults. The request has its number of `fragments`, its
-- `text` as the plugin writes it and its unit as `spelled`; it is nil if the text cannot be parsed.
-- The list has only the first fault of the size, since it would cause the others.
function M.read(text, policy, count_nodes)
  local request, faults = words.parse(text)
  if not request then return nil, faults end
  faults[1] = check_range(request, policy) or check_unit(request)
    or check_fragments(request, policy) or check_pool(request, policy) or words.check(request)
  faults[#faults + 1] = check_engine(request, policy)
  request.text = words.write(request)
  request.spelled = words.spell_unit(request)
  request.fragments = #faults == 0 and count_fragments(request, policy, count_nodes) or nil
  return request, faults
end

--- The same size, counted in the `gpus` of each node, for a job of whole nodes; nil if the site or
-- the job cannot have parts of nodes. The job's other options may still contradict it.
function M.spell_gpus(request, policy, gpus)
  local is_plain = request.unit == 1 and not (request.core or request.sizes or request.prefer)
  if not (policy.part_nodes or policy.parts_qos) or not is_plain then return nil end
  return spell(request.min * gpus, request.max * gpus, { unit = gpus, counted = "gpu",
    engine = request.engine, launch = request.launch, min_run = request.min_run })
end

return M
