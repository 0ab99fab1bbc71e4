--- Find the slot of a job with unit=gpu or unit=task: the needs of a worker, from sbatch's options.
--
-- Sizes count slots, and a fragment has some of them on a single node. Options may describe the
-- whole job or a node. This module replaces such an option if it determines a slot, and else
-- refuses it. An element waits with `unit` slots, as many as a fragment of a core has. The
-- reconciler writes the true size of all other fragments before each release.
-- Pure tables; runs on Lua 5.1 (Debian's Slurm) to 5.4.

local M = {}

local NO_VAL = 4294967294 -- an unset 32-bit field
local NO_VAL16 = 65534
local MOST_CPUS = 65533 -- Slurm keeps them in 16 bits
local MOST_MEMORY = 1e12 -- MiB
local SHARED_OK = 1 -- slurm.h, JOB_SHARED_*
local LEAST_MEMORY = 1 -- MiB of an element that waits, if its share is unknown here

--- A count that the user gave, or that Slurm derived, else nil.
local function read(value)
  if value == nil or value == NO_VAL or value == NO_VAL16 or value == 0 then return nil end
  return value
end

--- Kind and count in the text after `gpu`, such as `:a100:4`, `=4` or an empty text; else nil.
local function read_count(text)
  if text == "" then return "", 1 end
  local kind, count = text:match("^[:=]([%w_.-]*[%a_][%w_.-]*)(.*)$")
  if not kind then kind, count = "", text end
  if count == "" then return kind, 1 end
  local number = count:match("^[:=](%d+)$")
  if not number or #number > 12 or #kind > 40 then return nil end
  return kind, tonumber(number)
end

--- GPUs in a text like `gres:gpu:a100:4` or `gres/gpu=2,cpu:4`: {kind, count}, nil without GPUs,
-- and a fault.
local function read_gpus(text, option)
  local gpus
  for word in (text or ""):gmatch("[^,]+") do
    local name, rest = word:gsub("^gres[:/]", ""):match("^([%w_]+)(.*)$")
    if name ~= "cpu" then
      local kind, count = read_count(rest or "?")
      if name ~= "gpu" or not kind then
        return nil, string.format("%s=%s: with unit=gpu and unit=task this option takes whole GPUs "
          .. "only; write gpu:N, or leave unit= out", option, word:sub(1, 40))
      end
      if gpus then
        return nil, option .. ": names GPUs twice; write a single kind of GPU"
      end
      if kind:find("%dg%.%d+gb") then
        return nil, string.format("%s=%s: slices of a GPU cannot be counted; write whole GPUs, or "
          .. "leave unit= out", option, word:sub(1, 40))
      end
      gpus = { kind = kind, count = count }
    end
  end
  return gpus and gpus.count > 0 and gpus or nil
end

--- The GPUs in each option, as {kind, count} or nil, and the faults.
local function read_tres(job)
  local faults, tres = {}, {}
  local sources = {
    { "node", job.tres_per_node, "--gres or --gpus-per-node" },
    { "job", job.tres_per_job, "--gpus" },
    { "task", job.tres_per_task, "--gpus-per-task" },
    { "cpus", job.cpus_per_tres, "--cpus-per-gpu" },
    { "memory", job.mem_per_tres, "--mem-per-gpu" },
  }
  for _, source in ipairs(sources) do
    tres[source[1]], faults[#faults + 1] = read_gpus(source[2], source[3])
  end
  return tres, faults
end

--- The kind of GPU, which each option may give; empty for any kind.
local function find_kind(tres)
  local kind = ""
  for _, name in ipairs({ "node", "job", "task" }) do
    local other = tres[name] and tres[name].kind or ""
    if other ~= "" and kind ~= "" and other ~= kind then
      return nil, string.format("--gpus: the kinds %s and %s differ; write a single kind of GPU",
        kind, other)
    end
    if other ~= "" then kind = other end
  end
  return kind
end

--- Tasks on a node, from a rigid script; nil if it does not say.
local function find_tasks_per_node(job)
  local tasks, nodes = read(job.num_tasks) or 1, read(job.max_nodes) or read(job.min_nodes)
  return read(job.ntasks_per_node) or tasks == 1 and 1 or nodes and tasks / nodes
end

--- A number of GPUs and the number of tasks beside them, from the options of a rigid script; else
-- nil.
local function find_ratio(job, tres)
  if tres.task then return tres.task.count, 1 end
  if tres.node then return tres.node.count, find_tasks_per_node(job) end
  if tres.job then return tres.job.count, read(job.num_tasks) end
  return nil
end

--- With --cpus-per-gpu and --mem-per-gpu sbatch itself needs an option for GPUs (24.11.5).
local function spell_gpus(tres)
  return (tres.node or tres.job or tres.task) and "" or "--gres=gpu:1 "
end

--- True if the user asks for whole nodes.
local function is_exclusive(job)
  local shared = job.shared
  return shared ~= nil and shared ~= SHARED_OK and shared ~= NO_VAL16 and shared ~= NO_VAL
end

--- The GPUs that a job of whole nodes asks for on each node: {kind, count}, or nil if it does not
-- say, or wants whole nodes. `unit` counts the nodes of a fragment, `each` the tasks of a node.
function M.count_gpus(job, unit, each)
  if is_exclusive(job) then return nil end
  local tres, faults = read_tres(job)
  local kind = find_kind(tres)
  if #faults > 0 or not kind then return nil end
  local count = tres.node and tres.node.count or tres.job and math.ceil(tres.job.count / unit)
    or tres.task and tres.task.count * (each or 1)
  return count and { kind = kind, count = count } or nil
end

--- CPUs of a GPU; nil for the share of the node.
local function find_cpus_per_gpu(job, tres)
  if tres.cpus then return tres.cpus.count end
  local each = read(job.cpus_per_task)
  if not each then return nil end
  local gpus, tasks = find_ratio(job, tres)
  if tasks and each * tasks % gpus == 0 then return each * tasks / gpus, true end
  return nil, nil, string.format("--cpus-per-task=%d: does not say how many CPUs come with each "
    .. "GPU; write %s--cpus-per-gpu=N", each, spell_gpus(tres))
end

--- MiB of a GPU; nil for the share of the node.
local function find_memory_per_gpu(job, tres, cpus)
  if tres.memory then return tres.memory.count end
  local per_cpu, per_node = read(job.min_mem_per_cpu), read(job.min_mem_per_node)
  if per_cpu and cpus then return per_cpu * cpus, true end
  if per_node and tres.node then return math.floor(per_node / tres.node.count), true end
  if per_cpu or per_node then
    return nil, nil, (per_cpu and "--mem-per-cpu" or "--mem") .. ": does not say how much memory "
      .. "comes with each GPU; write " .. spell_gpus(tres) .. "--mem-per-gpu=SIZE"
  end
  return nil
end

--- The slot of a GPU, the notes on it, and the faults.
local function find_gpu(job, tres, request)
  local kind, fault = find_kind(tres)
  local faults = { fault }
  local cpus, is_new_cpus, cpus_fault = find_cpus_per_gpu(job, tres)
  faults[#faults + 1] = cpus_fault
  local memory, is_new_memory, memory_fault = find_memory_per_gpu(job, tres, cpus)
  faults[#faults + 1] = memory_fault
  local each = tres.task and tres.task.count or 1
  if each ~= 1 and each ~= request.unit then
    faults[#faults + 1] = string.format("--gpus-per-task=%d: fragments would not have a multiple "
      .. "of %d GPUs; write unit=%dgpu", each, each, each)
  end
  local notes = {}
  if is_new_cpus then notes[1] = string.format("%d CPUs", cpus) end
  if is_new_memory then notes[#notes + 1] = string.format("%d MiB", memory) end
  return { gres = "gpu" .. (kind and kind ~= "" and ":" .. kind or ""), cpus = cpus,
    memory = memory }, notes, faults
end

--- The slot of a task without a GPU, the notes on it, and the faults.
local function find_task(job, tres)
  local faults = {}
  if tres.node or tres.job or tres.task or tres.cpus or tres.memory then
    faults[1] = "--gpus: the tasks of unit=task have no GPUs; write unit=gpu, or drop the GPUs"
  end
  if read(job.min_mem_per_node) then
    faults[#faults + 1] = "--mem: does not say how much memory comes with each task; write "
      .. "--mem-per-cpu=SIZE"
  end
  local cpus = read(job.cpus_per_task) or 1
  local per_cpu = read(job.min_mem_per_cpu)
  return { gres = "", cpus = cpus, memory = per_cpu and per_cpu * cpus or nil }, {}, faults
end

local function check_slot(slot, request)
  if slot.cpus and (slot.cpus < 1 or slot.cpus * request.unit > MOST_CPUS) then
    return string.format("--cpus-per-%s: is out of range; write 1 to %d",
      slot.gres == "" and "task" or "gpu", math.floor(MOST_CPUS / request.unit))
  end
  if slot.memory and (slot.memory < 1 or slot.memory > MOST_MEMORY) then
    return string.format("--mem-per-%s: is out of range; write 1M to %dM",
      slot.gres == "" and "cpu" or "gpu", MOST_MEMORY)
  end
  return nil
end

--- A core is released before its node is known, so it has no share of a node.
local function check_core(request, slot, tres)
  local is_known = slot.cpus and slot.memory
  if not request.core or is_known then return nil end
  return string.format("--malleable: core=%d asks for as much as any job of yours, so say what "
    .. "comes with each %s; write %s", request.core, slot.gres == "" and "task" or "GPU",
    slot.gres == "" and "--mem-per-cpu=SIZE"
      or spell_gpus(tres) .. "--cpus-per-gpu=N --mem-per-gpu=SIZE")
end

local SHAPES = { { "threads_per_core", "--threads-per-core" },
  { "sockets_per_node", "--sockets-per-node" }, { "cores_per_socket", "--cores-per-socket" },
  { "core_spec", "--core-spec" } }

--- Options that have no meaning for parts of nodes.
local function check_options(job, faults)
  for _, shape in ipairs(SHAPES) do
    if read(job[shape[1]]) then
      faults[#faults + 1] = shape[2] .. ": fragments get free CPUs on any socket of a node; drop it"
    end
  end
  if job.tres_per_socket then
    faults[#faults + 1] = "--gpus-per-socket: fragments get free GPUs on any socket of a node; "
      .. "drop it"
  end
  if read(job.ntasks_per_tres) then
    faults[#faults + 1] = "--ntasks-per-gpu: the script starts the workers of a fragment; drop it"
  end
  if is_exclusive(job) then
    faults[#faults + 1] = "--exclusive: asks for whole nodes, but unit=gpu and unit=task for parts "
      .. "of nodes; drop --exclusive, or the unit"
  end
end

--- Options that --malleable replaces, as the user may have written them.
local function list_replaced(job, tres)
  local replaced = {}
  local function add(form, value)
    if value then replaced[#replaced + 1] = string.format(form, value) end
  end
  local per_node, nodes = read(job.ntasks_per_node), read(job.max_nodes) or read(job.min_nodes)
  add("--nodes=%d", nodes and nodes > 1 and nodes)
  add("--ntasks-per-node=%d", per_node)
  local is_counted = per_node and read(job.num_tasks) == per_node * (nodes or 1) -- by Slurm
  local tasks = not is_counted and not tres.task and read(job.num_tasks)
  add("--ntasks=%d", tasks and tasks > 1 and tasks)
  add("gpu:%d of each node", tres.node and tres.node.count > 1 and tres.node.count)
  add("--gpus=%d", tres.job and tres.job.count)
  local least = read(job.pn_min_cpus)
  add("--mincpus=%d", least ~= read(job.cpus_per_task) and least)
  if job.min_mem_per_node == 0 then replaced[#replaced + 1] = "--mem=0" end
  return replaced
end

local function write_notes(job, tres, request, derived)
  local notes, replaced = {}, list_replaced(job, tres)
  if #replaced > 0 then
    notes[1] = string.format("malleable: %s %s replaced by --malleable=%d-%d,unit=%s",
      table.concat(replaced, " and "), #replaced > 1 and "are" or "is", request.min, request.max,
      request.spelled)
  end
  if #derived > 0 then
    notes[#notes + 1] = "malleable: each GPU comes with " .. table.concat(derived, " and ")
  end
  return notes
end

--- Fields of an element that waits; an empty text unsets one.
local function write_fields(job, slot, gres, unit)
  local cpus = (slot.cpus or 1) * unit
  local set = { cpus_per_task = cpus, pn_min_cpus = cpus,
    pn_min_memory = slot.memory and slot.memory * unit or LEAST_MEMORY,
    tres_per_node = slot.gres ~= "" and string.format("%s%s:%d", gres, slot.gres, unit) or nil }
  for _, name in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "cpus_per_tres",
    "mem_per_tres" }) do
    if job[name] and not set[name] then set[name] = "" end
  end
  if read(job.ntasks_per_node) then set.ntasks_per_node = NO_VAL16 end
  if job.shared == SHARED_OK then set.shared = NO_VAL16 end
  return set
end

--- Return the fields to write for an element, with notes and faults.
-- gres: the prefix of a GPU's name in this Slurm, `gres:` or `gres/`.
-- Returns {tasks, cpus} as malleable_shape.lua's find does, and {slot, set, notes, faults}.
function M.find(job, request, gres)
  local tres, faults = read_tres(job)
  local slot, derived, more
  if request.counted == "gpu" then
    slot, derived, more = find_gpu(job, tres, request)
  else
    slot, derived, more = find_task(job, tres)
  end
  for _, fault in ipairs(more) do faults[#faults + 1] = fault end
  faults[#faults + 1] = check_slot(slot, request)
  if #faults == 0 then faults[1] = check_core(request, slot, tres) end
  check_options(job, faults)
  local set = write_fields(job, slot, gres, request.unit)
  return { slot = slot, tasks = 1, cpus = set.cpus_per_task, faults = faults, set = set,
    notes = write_notes(job, tres, request, derived) }
end

return M
