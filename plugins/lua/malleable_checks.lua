--- Turn a submission with --malleable into fields of a job, or refuse it.
--
-- Slurm's controller holds locks while job_submit runs, so this module computes on plain tables
-- only: malleable_submit.lua reads and writes job_desc. malleable_request.lua reads the request.
-- Numbers are in Slurm's units: minutes for limits, NO_VAL for "not given". Runs on Lua 5.1
-- (Debian's Slurm) to 5.4.

local M = {}

M.NO_VAL = 4294967294 -- an unset 32-bit field
M.NO_VAL16 = 65534 -- the same in a 16-bit field
M.INFINITE = 4294967295
M.MARK_PATTERN = "malleable{[^{}]*}"
M.EXCLUDED_LENGTH = 1000 -- of the nodes in --exclude, which the mark of each element also holds
M.NAME_LENGTH = 24 -- of a job's name, as much as the mark of each element holds

-- Only SLURM_* names reach the script under sbatch --export=NONE, and a step under srun's. The
-- plugin reads them in the job: the request, which marks the job as malleable even if it was
-- submitted without the plugin; the traits of the engine; the notice and the farewell, which become
-- MALLEABLE_*_S. The slot says how many workers a fragment has.
local REQUEST_VARIABLE = "SLURM_SPANK_MALLEABLE"
local TRAITS_VARIABLE = "SLURM_SPANK_MALLEABLE_TRAITS"
local NOTICE_VARIABLE = "SLURM_SPANK_MALLEABLE_NOTICE_S"
local FAREWELL_VARIABLE = "SLURM_SPANK_MALLEABLE_FAREWELL_S"
local SLOT_VARIABLE = "SLURM_SPANK_MALLEABLE_SLOT"

local SHARED_NONE = 0 -- slurm.h, JOB_SHARED_*

local MAIL_REQUEUE = 8 -- every shrink is a requeue
local MAIL_PER_FRAGMENT = { 16, 32, 64, 128, 512 } -- TIME_LIMIT, _90, _80, _50, ARRAY_TASKS

local own_dir = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local places = dofile(own_dir .. "malleable_place.lua")
local requests = dofile(own_dir .. "malleable_request.lua")

local function is_given(value)
  return value ~= nil and value ~= M.NO_VAL
end

--- True if the bit `flag`, a power of two, is set in `flags`; Lua 5.1 has no bit operators.
local function has_flag(flags, flag)
  return flag ~= nil and math.floor((flags or 0) / flag) % 2 == 1
end

--- Longest lease in seconds that the site and the partition allow.
local function limit_lease(record, policy)
  local minutes = record and record.max_time
  if is_given(minutes) and minutes ~= M.INFINITE and minutes > 0 then
    return math.min(policy.lease_s, minutes * 60)
  end
  return policy.lease_s
end

--- Lease and shortest hole in seconds, and a fault if they contradict each other. With a core,
-- --time is the time limit of the core.
local function choose_times(request, job, record, policy)
  local limit = limit_lease(record, policy)
  local is_lease = not (request and request.core)
  local has_time = is_lease and is_given(job.time_limit) and job.time_limit ~= M.INFINITE
  local has_min = is_given(job.time_min) and job.time_min ~= M.INFINITE and job.time_min > 0
  local lease = has_time and math.min(job.time_limit * 60, limit) or limit
  local hole = has_min and job.time_min * 60 or policy.hole_s
  if hole <= lease then return lease, hole, nil end
  if has_min and has_time and job.time_min > job.time_limit then
    return lease, hole, string.format("--time-min=%d: is longer than --time=%d; write "
      .. "--time-min=%d or less", job.time_min, job.time_limit, job.time_limit)
  end
  if has_min then
    return lease, hole, string.format("--time-min=%d: is longer than the longest lease (time limit "
      .. "of a fragment) here, %d seconds; write --time-min=%d or less", job.time_min, limit,
      math.max(math.floor(limit / 60), 1))
  end
  if has_time and limit >= policy.hole_s then
    return lease, hole, string.format("--time: is %d minute%s, as Slurm counts whole minutes, and "
      .. "a fragment starts only in a hole of %d seconds or more; write --time=%d or more",
      job.time_limit, job.time_limit == 1 and "" or "s", hole, math.ceil(hole / 60))
  end
  return lease, hole, string.format("time: the longest lease here, %d seconds, is shorter than the "
    .. "shortest hole, %d seconds; tell your administrator", limit, hole)
end

--- The notice in seconds: the time between the announcement of a fragment's end and the end.
local function find_notice(lane, policy)
  local notices = type(policy.notices) == "table" and policy.notices or {}
  return notices[lane] or policy.notice_s
end

--- Refuse a core that would get its notice in the first half of its time.
local function check_core_time(request, job, lane, policy)
  if not (request and request.core and is_given(job.time_limit)) then return nil end
  local notice = find_notice(lane, policy)
  if job.time_limit * 60 > 2 * notice then return nil end
  return string.format("--time=%d: a core gets notice %d seconds before its end here, which is at "
    .. "least half of its time; write --time=%d or more", job.time_limit, notice,
    math.floor(2 * notice / 60) + 1)
end

--- Keep mail about the whole job, and drop mail for each fragment or lease.
-- Returns the new mail type and true if it lacks a type that the user named.
function M.trim_mail(mail_type)
  local function drop(value, bit)
    return has_flag(value, bit) and value - bit or value
  end
  local kept = mail_type
  for _, bit in ipairs(MAIL_PER_FRAGMENT) do
    kept = drop(kept, bit)
  end
  return drop(kept, MAIL_REQUEUE), kept ~= mail_type
end

--- Append our mark to the site's text, in place of an older mark of ours.
local function write_comment(site_text, mark)
  local kept = (site_text or ""):gsub(M.MARK_PATTERN, "")
  local last = #kept
  while kept:sub(last, last) == ";" do last = last - 1 end
  if last == 0 then return mark end
  return kept:sub(1, last) .. ";" .. mark
end

--- The needs of a worker, as in the mark. For each need that is missing it gets a share of the
-- node.
local function write_slot(slot)
  local parts = { slot.gres ~= "" and slot.gres or nil }
  if slot.cpus then parts[#parts + 1] = string.format("cpu:%d", slot.cpus) end
  if slot.memory then parts[#parts + 1] = string.format("mem:%d", slot.memory) end
  return table.concat(parts, "+")
end

--- The job's name in the mark: jobs of the same name share what was learned.
local function write_name(name)
  if type(name) ~= "string" or name == "" then return "" end
  return ",name=" .. name:gsub("[^A-Za-z0-9_.-]", "_"):sub(1, M.NAME_LENGTH)
end

--- The nodes of --exclude, written without commas and brackets for the mark. If the mark lacks
-- them, each fragment gets its own node list, and only Slurm applies the exclusion.
local function write_excluded(nodes)
  if not nodes or nodes == "" then return ",not=-" end
  local isnt_plain = nodes:find("[^A-Za-z0-9_.,%[%]-]") or nodes == "-"
  if isnt_plain or #nodes > M.EXCLUDED_LENGTH then return "" end
  return ",not=" .. nodes:gsub("[%[%],]", { ["["] = "(", ["]"] = ")", [","] = "+" })
end

--- The core in the mark, and the lane of the other fragments; an empty text without a core.
local function write_core(request, lane)
  if not request.core then return "" end
  return string.format(",core=%d%s,lane=%s", request.core,
    request.core_end == "finish" and ",end=finish" or "", lane)
end

--- In the mark: the sizes that the job may have, the preferred size, and how long it keeps a size.
local function write_sizes(request)
  local sizes = request.allowed and ",allow=" .. table.concat(request.allowed, "+") or ""
  local prefer = request.prefer and string.format(",prefer=%d", request.prefer) or ""
  return sizes .. prefer .. (request.min_run and string.format(",keep=%d", request.min_run) or "")
end

local function write_mark(request, slot, times, name, excluded, policy, lane)
  local own = policy.foreign and policy.foreign[request.engine] -- an engine from a plugin
  local traits = own and ",traits=" .. own or ""
  local launch = request.launch and ",launch=" .. request.launch or ""
  local part = slot and ",slot=" .. write_slot(slot) or ""
  return string.format(
    "malleable{min=%d,max=%d,unit=%d,engine=%s%s%s,frags=%d,lease=%d,hole=%d%s%s%s%s%s}",
    request.min, request.max, request.unit, request.engine, traits, write_core(request, lane),
    request.fragments, times.lease, times.hole, launch, write_name(name),
    write_excluded(excluded), part, write_sizes(request))
end

--- Seconds as `sbatch --time` reads them.
local function spell_time(seconds)
  local days, hours = math.floor(seconds / 86400), math.floor(seconds / 3600) % 24
  local rest = string.format("%02d:%02d", math.floor(seconds / 60) % 60, seconds % 60)
  if days > 0 then return string.format("%d-%02d:%s", days, hours, rest) end
  if hours > 0 then return string.format("%d:%s", hours, rest) end
  return (rest:gsub("^0", ""))
end

--- A note if the user gave more time than a fragment may have. With a core it is the core's time.
local function write_cut_note(request, job, lease)
  local is_lease = not request.core and is_given(job.time_limit)
  if not is_lease or job.time_limit == M.INFINITE then return nil end
  if job.time_limit * 60 <= lease then return nil end
  return string.format("note: --time=%s is cut to %s, the longest lease here; the job continues "
    .. "after it", spell_time(job.time_limit * 60), spell_time(lease))
end

--- True if all fragments would write to the same file.
local function is_shared_file(path)
  return path ~= nil and path ~= "/dev/null" and not path:find("%%%d*[ajJN]")
end

--- True if the script itself asks to append to its output.
local function is_appending(script)
  for line in (script or ""):gmatch("#SBATCH([^\n]*)") do
    if line:find("%-%-open%-mode[=%s]+a") then return true end
  end
  return false
end

local function write_notes(job, site, policy, lost_mail)
  local notes = {}
  if is_shared_file(job.std_out) and not (policy.appends or is_appending(job.script)) then
    -- Lua can neither read nor write open_mode, as the command line sets it (22.05).
    notes[1] = "note: all fragments write to " .. job.std_out .. ", and each start empties it; "
      .. "write --open-mode=append, or %a in --output"
  end
  if lost_mail then
    notes[#notes + 1] = "note: ARRAY_TASKS and TIME_LIMIT mail is not sent, as it would come for "
      .. "every fragment; mail about the whole job is sent"
  end
  if has_flag(job.bitflags, site.expedite) then
    notes[#notes + 1] = "note: --requeue=expedite is left out, as fragments start again when nodes "
      .. "are idle"
  end
  return notes
end

--- A note if the user named several partitions, of which the job gets only a single one.
local function write_partition_note(name, job)
  if not (job.partition or ""):find(",", 1, true) then return nil end
  return string.format("note: --partition=%s: a malleable job runs in %s only", job.partition,
    name)
end

--- What to write for the GPUs that stay idle: the line that counts GPUs, if the checks accept it.
local function advise_gpus(asked, policy, fit)
  local line = requests.spell_gpus(asked.request, policy, asked.gpus.count)
  if line and asked.accepts(line:match("=(.*)")) then return "write " .. line end
  local all = #fit == 1 and string.format("all %s GPUs of a node", fit[1])
    or "all GPUs of the nodes"
  return "ask for " .. all .. " instead, and use them in the script"
end

--- A note if every node on which the job fits has more GPUs than it asks for. policy.gpus has, by
-- partition and by `gpu` or `gpu:KIND`, the numbers of GPUs that nodes have, from few to many.
local function write_gpu_note(asked, policy, lane)
  if not asked.gpus then return nil end
  local gpus, known, fit = asked.gpus, (policy.gpus or {})[lane], {}
  local name = gpus.kind == "" and "gpu" or "gpu:" .. gpus.kind
  for _, count in ipairs(known and known[name] or {}) do
    if count == gpus.count then return nil end
    if count > gpus.count then fit[#fit + 1] = string.format("%d", count) end
  end
  if #fit == 0 then return nil end
  return string.format("note: the job asks for %d GPU%s of each node, and gets whole nodes of %s "
    .. "GPUs; %s", gpus.count, gpus.count == 1 and "" or "s", table.concat(fit, " or "),
    advise_gpus(asked, policy, fit))
end

--- A note if the partition can never give the job its MAX.
local function write_size_note(request, name, record)
  local total = record and record.total_nodes
  if request.counted or not total or total >= request.max then return nil end
  return string.format("note: only %d node%s in partition %s, fewer than the MAX of %d", total,
    total == 1 and "" or "s", name, request.max)
end

local function add(list, more)
  for _, item in ipairs(more) do
    list[#list + 1] = item
  end
end

--- A remark on a core with more time than its partition allows: Slurm accepts it, but may not start
-- it.
local function write_time_note(job, place, parts)
  local record = parts[place.own]
  local most = record and record.max_time
  if not (is_given(job.time_limit) and is_given(most)) or job.time_limit <= most then return "" end
  return string.format("; with --time=%d it may never start, as %s allows %d minute%s",
    job.time_limit, place.own, most, most == 1 and "" or "s")
end

local REST = { gpu = "GPUs come from idle GPUs", task = "tasks come to idle CPUs" }

--- A note that names the partition in which the core waits.
local function write_core_note(request, place, job, parts)
  if not request.core then return nil end
  local note = string.format("note: core=%d waits in %s like any job, and the other %s in %s%s",
    request.core, place.own, REST[request.counted] or "nodes come from idle nodes", place.lane,
    write_time_note(job, place, parts))
  if request.core >= request.min then return note end
  return note .. string.format("; a core below MIN %d cannot run alone", request.min)
end

--- The partition, QOS, account and time limit to write. A core keeps what its user asked for.
local function write_place(request, place, times, policy)
  if request.core then return { partition = place.partition } end
  local limit = math.max(math.floor(times.lease / 60), 1)
  return { partition = place.partition, qos = places.find_qos(request, policy),
    account = policy.account, time_limit = limit }
end

--- Fields to write for a valid request.
local function write_fields(request, shape, job, site, policy, place, times)
  local nodes = shape.slot and 1 or request.unit
  local set = {
    array_inx = string.format("0-%d", request.fragments - 1),
    min_nodes = nodes,
    max_nodes = nodes,
    num_tasks = shape.tasks,
    min_cpus = shape.cpus,
    priority = 0,
    requeue = 1,
    admin_comment = write_comment(site.admin_comment,
      write_mark(request, shape.slot, times, job.name, site.exc_nodes, policy, place.lane)),
  }
  for name, value in pairs(write_place(request, place, times, policy)) do set[name] = value end
  if not shape.slot then set.shared = SHARED_NONE end -- whole nodes, whatever the partition says
  for name, value in pairs(shape.set or {}) do set[name] = value end
  -- With a minimum, backfill would shorten the limit that the reconciler set.
  if is_given(job.time_min) then set.time_min = M.NO_VAL end
  -- 25.11: Slurm would restart a failed fragment automatically, with its old lease.
  if has_flag(job.bitflags, site.expedite) then set.bitflags = job.bitflags - site.expedite end
  return set
end

--- Variables of the job's environment.
local function write_environment(request, shape, policy, lane)
  local environment = { [REQUEST_VARIABLE] = request.text,
    [TRAITS_VARIABLE] = policy.engines[request.engine],
    [NOTICE_VARIABLE] = string.format("%d", find_notice(lane, policy)) }
  if shape.slot then environment[SLOT_VARIABLE] = write_slot(shape.slot) end
  if request.counted == "task" then -- if it is set, Slurm updates it with each element
    environment.SLURM_CPUS_PER_TASK = string.format("%d", shape.cpus)
  end
  if type(policy.farewell_s) == "number" then -- not in a file of an older version
    environment[FAREWELL_VARIABLE] = string.format("%g", policy.farewell_s)
  end
  if shape.tasks then -- srun in the script reads them
    local text = string.format("%d", shape.tasks)
    environment.SLURM_NTASKS, environment.SLURM_NPROCS = text, text
  end
  return environment
end

--- The fields and notes of a submission without a fault.
local function accept(asked, job, site, policy, place, times)
  local request, shape = asked.request, asked.shape
  local set = write_fields(request, shape, job, site, policy, place, times)
  local mail, lost_mail = M.trim_mail(job.mail_type or 0)
  if mail ~= (job.mail_type or 0) then set.mail_type = mail end
  local notes = { asked.note }
  notes[#notes + 1] = shape.note
  add(notes, shape.notes or {})
  add(notes, request.notes)
  notes[#notes + 1] = asked.script.note
  notes[#notes + 1] = write_core_note(request, place, job, site.parts)
    or write_partition_note(place.lane, job)
  notes[#notes + 1] = write_size_note(request, place.lane, site.parts[place.lane])
  notes[#notes + 1] = write_gpu_note(asked, policy, place.lane)
  notes[#notes + 1] = write_cut_note(request, job, times.lease)
  add(notes, write_notes(job, site, policy, lost_mail))
  return { faults = {}, notes = notes, set = set,
    environment = write_environment(request, shape, policy, place.lane) }
end

--- Decide on a submission.
-- asked: {request, faults, note} from malleable_request.lua (request is nil if it cannot be
-- parsed). It also has the answers of the other modules: `options` are the faults of the job's
-- other options, `shape` the nodes and tasks of a fragment or its part of a node, `gpus`
-- the GPUs of each node, {kind, count} or nil, `script` the faults or note of the script, and
-- `accepts` tells whether the same job with another request has no fault.
-- job: fields as the user set them. site: {user, partition, admin_comment, exc_nodes, qos,
-- default_qos, parts, expedite}: the job's uid, fields after the site's own function, Slurm's
-- partition records by name, and the bit in bitflags that means --requeue=expedite (nil before
-- 25.11). policy: a checked policy.
-- Returns {faults, notes, set, environment}. If there are faults, refuse the job; else write `set`
-- into the job and `environment` into its script's environment.
function M.submit(asked, job, site, policy)
  local barred = places.check_user(site.user, policy)
  if barred then return { faults = { barred }, notes = {} } end
  local request, faults = asked.request, {}
  add(faults, asked.faults)
  if #faults > 0 then request = nil end -- checks against a faulty request would mislead
  local refused = places.check_part_nodes(request, policy)
  if refused then
    faults[#faults + 1] = refused -- then the needs of its parts do not matter
  elseif request then
    faults[#faults + 1] = asked.shape.fault
    add(faults, asked.shape.faults or {})
    faults[#faults + 1] = asked.script.signal
    faults[#faults + 1] = asked.script.fault
  end
  add(faults, asked.options)
  local given = asked.request -- even a faulty request says whether there is a core
  local place = places.find(given and given.core and given or request, job, site, policy)
  local record = site.parts[place.lane]
  faults[#faults + 1] = place.fault or places.check_lane(place.lane, request, record, policy)
  if request and not request.core then -- a core may run where nodes are larger
    add(faults, places.check_needs(job, asked.gpus, place.lane, policy))
  end
  faults[#faults + 1] = places.check_qos(job.qos, given, site, policy)
  faults[#faults + 1] = places.check_account(job.account, given, policy)
  local lease, hole, fault = choose_times(given, job, record, policy)
  faults[#faults + 1] = fault
  faults[#faults + 1] = check_core_time(given, job, place.lane, policy)
  if #faults > 0 then return { faults = faults, notes = {} } end
  return accept(asked, job, site, policy, place, { lease = lease, hole = hole })
end

return M
