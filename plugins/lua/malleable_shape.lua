--- Find the nodes and tasks of a fragment, from a script that was written for a rigid job.
--
-- `--nodes=4` and `--ntasks=4` give the size of the whole job, which --malleable replaces. Each
-- node keeps the tasks that it would have had. Pure tables; runs on Lua 5.1 (Debian's Slurm) to
-- 5.4.

local M = {}

local NO_VAL = 4294967294 -- an unset 32-bit field
local NO_VAL16 = 65534
local GPUS_OF_JOB = "would be the GPUs of a single fragment, as --malleable replaces the nodes; "
  .. "write --gpus-per-node="

--- A count that the user gave, or that Slurm derived, else nil.
local function read(value)
  if value == nil or value == NO_VAL or value == NO_VAL16 or value == 0 then return nil end
  return value
end

--- Tasks on each node, of `least` to `most` nodes; nil if the nodes would have different numbers.
local function find_tasks_per_node(tasks, per_node, least, most)
  if per_node and tasks >= least * per_node then return per_node end
  if tasks % most == 0 then return tasks / most end
  if tasks % least == 0 then return tasks / least end
  return per_node
end

local function spell_range(least, most)
  if least == most then return string.format("--nodes=%d", least) end
  return string.format("--nodes=%d-%d", least, most)
end

local function write_note(replaced, request)
  return string.format("malleable: %s %s replaced by --malleable=%d-%d",
    table.concat(replaced, " and "), #replaced > 1 and "are" or "is", request.min, request.max)
end

--- The part `part` / `whole` of `count`, rounded up; nil without a count.
local function share(count, part, whole)
  return count and math.ceil(count * part / whole)
end

--- CPUs of `unit` nodes with a task each. For a range of nodes sbatch counts the CPUs of 1 task,
-- for a single number the CPUs of all nodes.
local function find_cpus(job, unit, most)
  local all, each = read(job.min_cpus), read(job.cpus_per_task)
  return all and each and unit * each or share(all, unit, most)
end

--- The shape from the tasks of all `nodes`; `nodes` is nil if only tasks were given.
local function find_with_tasks(job, request, nodes, replaced)
  local tasks, per_node, unit = job.num_tasks, read(job.ntasks_per_node), request.unit
  local least, most = nodes and nodes.least or unit, nodes and nodes.most or unit
  local each = find_tasks_per_node(tasks, per_node, least, most)
  if not each then
    return { fault = string.format("--ntasks=%d: is no multiple of %s, so nodes would have "
      .. "different numbers of tasks; write --ntasks-per-node=N instead", tasks,
      spell_range(least, most)) }
  end
  local is_counted = nodes and per_node and tasks == least * per_node -- by Slurm
  if not is_counted then replaced[#replaced + 1] = string.format("--ntasks=%d", tasks) end
  return { tasks = each * unit, cpus = share(read(job.min_cpus), each * unit, tasks),
    note = write_note(replaced, request) }
end

--- As M.find, without the tasks of a node.
local function find_fragment(job, request, tasks, per_node)
  local unit, least = request.unit, read(job.min_nodes)
  local most = read(job.max_nodes) or least
  if least and (least ~= unit or most ~= unit) then
    local replaced = { spell_range(least, most) }
    if tasks then
      return find_with_tasks(job, request, { least = least, most = most }, replaced)
    end
    return { cpus = find_cpus(job, unit, most), note = write_note(replaced, request) }
  end
  if tasks and per_node and tasks > per_node * unit then
    return find_with_tasks(job, request, nil, {})
  end
  return {}
end

--- --gpus counts the GPUs of the whole job. With its nodes replaced, each fragment would get all.
local function check_gpus(job)
  local asked = (job.tres_per_job or ""):match("^gres[:/]gpu:(.+)$") or ""
  local kind, count = asked:match("^([%w_-]+:)(%d+)$")
  if not count then kind, count = "", asked:match("^%d+$") end
  if not count then return "--gpus: " .. GPUS_OF_JOB .. "N" end
  local nodes, advice = read(job.max_nodes) or read(job.min_nodes), "N"
  if nodes and count % nodes == 0 then advice = string.format("%s%d", kind, count / nodes) end
  return string.format("--gpus=%s%s: %s%s", kind, count, GPUS_OF_JOB, advice)
end

--- Return the fields to write for a fragment, with a note or a fault: {tasks, cpus, note, fault,
-- each}. A field that is nil stays as the user gave it. `each` is the most tasks of a node, nil if
-- the job does not say.
function M.find(job, request)
  local tasks, per_node = read(job.num_tasks), read(job.ntasks_per_node)
  local shape = find_fragment(job, request, tasks, per_node)
  if shape.note and job.tres_per_job then return { fault = check_gpus(job) } end
  local all = shape.tasks or tasks
  shape.each = all and math.ceil(all / request.unit) or per_node
  return shape
end

return M
