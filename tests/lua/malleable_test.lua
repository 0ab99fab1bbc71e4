-- Tables of cases for the pure modules. Run as: lua malleable_test.lua DIRECTORY_OF_MODULES
-- Prints one line per failed case; exits 1 if there is one.

local dir = arg[1]
local request_module = dofile(dir .. "/malleable_request.lua")
local shape_module = dofile(dir .. "/malleable_shape.lua")
local slot_module = dofile(dir .. "/malleable_slot.lua")
local script_module = dofile(dir .. "/malleable_script.lua")
local options_module = dofile(dir .. "/malleable_options.lua")
local place_module = dofile(dir .. "/malleable_place.lua")
local checks_module = dofile(dir .. "/malleable_checks.lua")
local modify_module = dofile(dir .. "/malleable_modify.lua")

local NO_VAL, NO_VAL16, INFINITE = 4294967294, 65534, 4294967295
local EXPEDITE = 2 ^ 45 -- slurm.EXPEDITED_REQUEUE of 25.11
local ran, failed = 0, 0

local function show(value)
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  for key, item in pairs(value) do
    parts[#parts + 1] = tostring(key) .. "=" .. show(item)
  end
  table.sort(parts)
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function check(name, ok, seen)
  ran = ran + 1
  if ok then return end
  failed = failed + 1
  print("FAILED " .. name .. ": saw " .. show(seen))
end

local ABSENT = {} -- as a change: the key is not there

local function merge(base, changes)
  local result = {}
  for key, value in pairs(base) do result[key] = value end
  for key, value in pairs(changes or {}) do
    if value == ABSENT then result[key] = nil else result[key] = value end
  end
  return result
end

local POLICY = {
  partitions = { "malleable", "scavenge" },
  unfit = { scavenge = "PartitionName=scavenge PriorityTier=1: the same tier" },
  operators = { [0] = true, [64030] = true },
  engines = { torchrun = "gang+rounds+torchrun", tasks = "pool" }, max_workers = 1000,
  max_fragments = 64, max_nodes = 1024, max_array_size = 1001, lease_s = 600, hole_s = 120,
  notice_s = 20,
  launchers = { torchrun = true, ["torch.distributed.run"] = true, accelerate = true,
    slurm_hooks = true },
}

-- What Slurm 22.05 shows for `sbatch --malleable=2-16 job.sh`, as Lua 5.1 and 5.3 see it.
local JOB = {
  min_nodes = NO_VAL, max_nodes = NO_VAL, priority = NO_VAL, requeue = NO_VAL16,
  time_limit = NO_VAL, time_min = NO_VAL, het_job_offset = NO_VAL, mail_type = 0,
  num_tasks = NO_VAL, ntasks_per_node = NO_VAL16, begin_time = 0, contiguous = 0,
  cron_job = false,
}

local PARTS = {
  malleable = { max_time = INFINITE, total_nodes = 500, flag_default = 0 },
  main = { max_time = INFINITE, total_nodes = 500, flag_default = 1 },
}

-- QOS whose submit limits count elements; the partition `scavenge` has one of its own.
local LIMITED = { submit_limits = { small = { user = 8, account = 100 }, lane = { user = 12 },
  first = { user = 8 }, group = { account = 9, all = 30 } },
  part_qos = { scavenge = "lane" }, over_qos = { first = true },
  unfit = {} }

local function submit(case)
  local policy = merge(POLICY, case.policy)
  local site = merge({ parts = PARTS }, case.site)
  local job = merge(JOB, case.job)
  local function count_nodes(asked) return place_module.count_nodes(asked, job, site, policy) end
  local request, faults = request_module.read(case.text or "2-16,unit=1,engine=torchrun", policy,
    count_nodes)
  local asked = { request = request, faults = faults, options = options_module.check(job) }
  if #faults == 0 then
    local most, who = place_module.find_submit_limit(request, job, site, policy)
    faults[1], asked.note = request_module.cut(request, most, who)
  end
  if #faults == 0 then
    asked.shape = request.counted and slot_module.find(job, request, "gres:")
      or shape_module.find(job, request)
    asked.gpus = not request.counted and slot_module.count_gpus(job, request.unit, asked.shape.each)
      or nil
    asked.script = script_module.check(job.script, request, asked.shape.each, policy.launchers)
  end
  function asked.accepts(text) return #submit(merge(case, { text = text })).faults == 0 end
  return checks_module.submit(asked, job, site, policy)
end

-- Sound submissions: fields that must be written.
local SOUND = {
  { name = "canonical", set = {
    partition = "malleable", array_inx = "0-15", min_nodes = 1, max_nodes = 1, priority = 0,
    requeue = 1, shared = 0, time_limit = 10, admin_comment =
      "malleable{min=2,max=16,unit=1,engine=torchrun,frags=16,lease=600,hole=120,not=-}" } },
  { name = "short form", text = "2-4", set = { array_inx = "0-3" } },
  { name = "one node", text = "1-1", set = { array_inx = "0-0" } },
  { name = "unit and launch", text = "4-16,unit=4,engine=tasks,launch=srun", set = {
    array_inx = "0-3", min_nodes = 4, max_nodes = 4, admin_comment =
      "malleable{min=4,max=16,unit=4,engine=tasks,frags=4,lease=600,hole=120,"
        .. "launch=srun,not=-}" } },
  { name = "keys in any order", text = "2-4,engine=tasks,unit=2", set = { array_inx = "0-1" } },
  { name = "floats as Lua 5.3 sees Slurm's numbers", job = { time_limit = 5.0, time_min = 3.0 },
    set = { time_limit = 5, time_min = NO_VAL, admin_comment =
      "malleable{min=2,max=16,unit=1,engine=torchrun,frags=16,lease=300,hole=180,not=-}" } },
  { name = "time is capped", job = { time_limit = 60 }, set = { time_limit = 10 },
    note = "^note: %-%-time=1:00:00 is cut to 10:00, the longest lease here; the job continues "
      .. "after it$" },
  { name = "two days are capped", job = { time_limit = 2880 }, set = { time_limit = 10 },
    note = "%-%-time=2%-00:00:00 is cut to 10:00" },
  { name = "a long lease", job = { time_limit = 1565.0 }, policy = { lease_s = 90000 },
    set = { time_limit = 1500 }, note = "%-%-time=1%-02:05:00 is cut to 1%-01:00:00" },
  { name = "an odd longest lease", job = { time_limit = 3 }, policy = { lease_s = 150 },
    set = { time_limit = 2 }, note = "%-%-time=3:00 is cut to 2:30" },
  { name = "time of the longest lease", job = { time_limit = 10 }, set = { time_limit = 10 } },
  { name = "time unlimited", job = { time_limit = INFINITE }, set = { time_limit = 10 } },
  { name = "shorter time with its own minimum", job = { time_limit = 1, time_min = 1 },
    set = { time_limit = 1, admin_comment =
      "malleable{min=2,max=16,unit=1,engine=torchrun,frags=16,lease=60,hole=60,not=-}" } },
  { name = "odd lease is rounded down", policy = { lease_s = 199 }, set = { time_limit = 3 } },
  { name = "short lease is one minute", policy = { lease_s = 40, hole_s = 30 },
    set = { time_limit = 1 } },
  { name = "partition limit caps the lease", site = { parts = {
    malleable = { max_time = 4, total_nodes = 99 } } }, set = { time_limit = 4 } },
  { name = "MAX above the partition", site = { parts = {
    malleable = { max_time = INFINITE, total_nodes = 4 } } }, set = { array_inx = "0-15" },
    note = "^note: only 4 nodes in partition malleable, fewer than the MAX of 16$" },
  { name = "MAX of the whole partition", site = { parts = {
    malleable = { max_time = INFINITE, total_nodes = 16 } } }, set = { array_inx = "0-15" } },
  { name = "partition not listed for this user", site = { parts = {} },
    set = { partition = "malleable" } },
  { name = "site filled in its default partition", site = { partition = "main" },
    set = { partition = "malleable" } },
  { name = "site chose one of ours", site = { partition = "scavenge" },
    policy = { unfit = {} }, set = { partition = "scavenge" } },
  { name = "partition by name", job = { partition = "malleable" },
    set = { partition = "malleable" } },
  { name = "several partitions, ours among them", job = { partition = "main,malleable,long" },
    set = { partition = "malleable" },
    note = "^note: %-%-partition=main,malleable,long: a malleable job runs in malleable only$" },
  { name = "two of ours", job = { partition = "scavenge,malleable" },
    policy = { unfit = {} },
    set = { partition = "scavenge" }, note = "runs in scavenge only$" },
  { name = "whole nodes, with the partition for parts", job = { partition = "parts,malleable" },
    policy = { part_nodes = "parts", partitions = { "parts", "malleable" } },
    set = { partition = "malleable" }, note = "runs in malleable only$" },
  { name = "site comment is kept", site = { admin_comment = "paid by x" }, set = { admin_comment =
    "paid by x;malleable{min=2,max=16,unit=1,engine=torchrun,frags=16,lease=600,hole=120,"
      .. "not=-}" } },
  { name = "older mark is replaced", site = { admin_comment = "a;malleable{lease=9999}" },
    set = { admin_comment =
      "a;malleable{min=2,max=16,unit=1,engine=torchrun,frags=16,lease=600,hole=120,not=-}" } },
  { name = "nodes that are excluded", site = { exc_nodes = "n[1-3,7],x-a,x.b" }, set = {
    admin_comment =
      "malleable{min=2,max=16,unit=1,engine=torchrun,frags=16,lease=600,hole=120,"
        .. "not=n(1-3+7)+x-a+x.b}" } },
  { name = "what is no plain host list", site = { exc_nodes = "n1;x" }, set = { admin_comment =
      "malleable{min=2,max=16,unit=1,engine=torchrun,frags=16,lease=600,hole=120}" } },
  { name = "a host list too long for a mark", site = { exc_nodes = ("n1,"):rep(400) .. "n2" },
    set = { admin_comment =
      "malleable{min=2,max=16,unit=1,engine=torchrun,frags=16,lease=600,hole=120}" } },
  { name = "the name of the job", job = { name = "train a,b}=\n|7.sh" }, set = { admin_comment =
      "malleable{min=2,max=16,unit=1,engine=torchrun,frags=16,lease=600,hole=120,"
        .. "name=train_a_b____7.sh,not=-}" } },
  { name = "a long name is cut", text = "2-4", job = { name = ("x"):rep(99) }, set = {
    admin_comment = "malleable{min=2,max=4,unit=1,engine=torchrun,frags=4,lease=600,hole=120,name="
      .. ("x"):rep(24) .. ",not=-}" } },
  { name = "nodes equal to the unit", text = "2-4,unit=2", job = { min_nodes = 2, max_nodes = 2 },
    set = { min_nodes = 2 } },
  { name = "tasks that fit", job = { num_tasks = 4, ntasks_per_node = 4 }, set = { requeue = 1 } },
  { name = "mail all", job = { mail_type = 1295 }, set = { mail_type = 1287 } },
  { name = "mail per fragment and limits", job = { mail_type = 512 + 16 + 128 + 2 },
    set = { mail_type = 2 }, note = "mail" },
  { name = "requeue asked for", job = { requeue = 1 }, set = { requeue = 1 } },
  { name = "other dependency", job = { dependency = "afterok:12" }, set = { requeue = 1 } },
  { name = "shared log", job = { std_out = "/home/a/log" },
    set = { requeue = 1 }, note = "%-%-output" },
  { name = "shared log, appended to by all", policy = { appends = true },
    job = { std_out = "/home/a/log" }, set = {} },
  { name = "shared log, appended to by the script", set = {},
    job = { std_out = "/home/a/log",
      script = "#!/bin/sh\n#SBATCH --open-mode=append\ntorchrun x" } },
  { name = "shared log, emptied by the script", set = {}, note = "%-%-output",
    job = { std_out = "/home/a/log",
      script = "#!/bin/sh\n#SBATCH --open-mode=truncate\ntorchrun x" } },
  { name = "correlated in name only", job = { dependency = "afterok:12,afterany:13" }, set = {} },
  { name = "shares asked for", job = { shared = 1 }, set = { shared = 0 } },
  { name = "exclusive", job = { shared = 0 }, set = { shared = 0 } },
  { name = "a comment of one line", job = { comment = "Käse; joined{1}" }, set = {} },
  { name = "switches not asked for", job = { req_switch = NO_VAL }, set = {} },
  { name = "expedite", job = { bitflags = 503316480 + EXPEDITE }, site = { expedite = EXPEDITE },
    set = { bitflags = 503316480 }, note = "expedite is left out" },
  { name = "other flags stay", job = { bitflags = 503316480 }, site = { expedite = EXPEDITE },
    set = {}, unset = "bitflags" },
  { name = "that bit before 25.11", job = { bitflags = EXPEDITE }, set = {}, unset = "bitflags" },
  { name = "the site's notice", policy = { notice_s = 35.0 }, notice = "35", set = {} },
  { name = "the notice of its partition", policy = { notices = { malleable = 300 } },
    notice = "300", set = {} },
  { name = "the notice of another partition", policy = { notices = { other = 300 } }, set = {} },
  { name = "the site's farewell", policy = { farewell_s = 3 }, farewell = "3", set = {} },
  { name = "exactly max_fragments", text = "1-64", set = { array_inx = "0-63" } },
  { name = "a pool", text = "0-64,unit=1,engine=tasks", set = { array_inx = "0-63", min_nodes = 1,
    admin_comment = "malleable{min=0,max=64,unit=1,engine=tasks,frags=64,lease=600,"
      .. "hole=120,not=-}" } },
  { name = "exactly max_workers", text = "0-1000,engine=tasks", set = { array_inx = "0-999" },
    note = "only 500 nodes" },
  { name = "a pool with a least size and srun", text = "4-64,unit=2,engine=tasks,launch=srun",
    set = { array_inx = "0-31", min_nodes = 2 } },
  { name = "a pool under a policy of an older version", text = "1-64,engine=tasks",
    policy = { max_workers = ABSENT }, set = { array_inx = "0-63" } },
  { name = "an engine of the site's own", text = "1-4,engine=horovod",
    policy = { engines = { horovod = "gang+rounds" }, foreign = { horovod = "gang+rounds" } },
    traits = "gang+rounds", set = { admin_comment = "malleable{min=1,max=4,unit=1,engine=horovod,"
      .. "traits=gang+rounds,frags=4,lease=600,hole=120,not=-}" } },
  { name = "a user who is named", policy = { users = { [1001] = true } }, site = { user = 1001 },
    set = {} },
  { name = "the site's QOS", policy = { qos = "scavenge" }, set = { qos = "scavenge" } },
  { name = "the site's QOS, asked for", policy = { qos = "scavenge" }, job = { qos = "scavenge" },
    set = { qos = "scavenge" } },
  { name = "the site's account", policy = { account = "spare" }, set = { account = "spare" } },
  { name = "the site's account, asked for", policy = { account = "spare" },
    job = { account = "SPARE" }, set = { account = "spare" } },
  { name = "no account of the site's", job = { account = "lab" }, set = {}, unset = "account" },
  { name = "no QOS of the site's", job = { qos = "normal" }, set = {}, unset = "qos" },
  { name = "exactly the QOS's submit limit", text = "1-8", set = { array_inx = "0-7" },
    policy = merge(LIMITED, { qos = "small" }) },
  { name = "beyond the QOS's submit limit", text = "1-9", policy = merge(LIMITED,
    { qos = "small" }), set = { array_inx = "0-7", admin_comment =
      "malleable{min=1,max=8,unit=1,engine=torchrun,frags=8,lease=600,hole=120,not=-}" },
    note = "^note: MAX 9 is cut to 8: QOS small lets a user submit 8 jobs, and each fragment "
      .. "counts as a job$" },
  { name = "beyond it with sizes", text = "2-16,sizes=2,6,10,16,prefer=16", policy = LIMITED,
    site = { qos = "small" }, set = { array_inx = "0-5",
      admin_comment = "malleable{min=2,max=6,unit=1,engine=torchrun,frags=6,lease=600,hole=120,"
        .. "not=-,allow=2+6,prefer=6}" },
    note = "MAX 16 is cut to 6: QOS small lets a user submit 8 jobs" },
  { name = "the user's QOS", text = "2-64,unit=2", site = { qos = "Small" }, policy = LIMITED,
    set = { array_inx = "0-7" }, note = "MAX 64 is cut to 16: QOS small" },
  { name = "the user's default QOS", text = "1-64", site = { default_qos = "group" },
    policy = LIMITED, set = { array_inx = "0-8" }, note = "QOS group lets an account submit 9" },
  { name = "no QOS by name", text = "1-64", policy = { submit_limits = { normal = { user = 3 } } },
    set = { array_inx = "0-2" }, note = "QOS normal lets a user submit 3 jobs" },
  { name = "the site's QOS before the user's", text = "1-10", site = { qos = "small" },
    policy = merge(LIMITED, { qos = "other" }), set = { array_inx = "0-9" } },
  { name = "a partition's QOS before the job's", text = "1-16", site = { qos = "small" },
    job = { partition = "scavenge" }, policy = LIMITED, set = { array_inx = "0-11" },
    note = "QOS lane lets a user submit 12 jobs" },
  { name = "but for one that says otherwise", text = "1-16", site = { qos = "first" },
    job = { partition = "scavenge" }, policy = LIMITED, set = { array_inx = "0-7" },
    note = "QOS first lets a user submit 8 jobs" },
  { name = "limits of several kinds", text = "1-64", site = { qos = "group" },
    job = { partition = "scavenge" }, policy = LIMITED, set = { array_inx = "0-8" },
    note = "QOS group lets an account" },
  { name = "a submit limit above the others", text = "1-64", set = { array_inx = "0-63" },
    policy = { qos = "wide", submit_limits = { wide = { user = 5000 } } } },
}

for _, case in ipairs(SOUND) do
  local decision = submit(case)
  check(case.name .. " (no faults)", #decision.faults == 0, decision.faults)
  for field, value in pairs(case.set) do
    local seen = decision.set and decision.set[field]
    check(case.name .. " (" .. field .. ")", seen == value, seen)
  end
  local said = table.concat(decision.notes, "\n")
  check(case.name .. " (notes)", said:find(case.note or "^$") ~= nil, said)
  if case.unset then
    check(case.name .. " (left alone)", decision.set[case.unset] == nil, decision.set)
  end
  check(case.name .. " (no slot)", not decision.environment
    or decision.environment.SLURM_SPANK_MALLEABLE_SLOT == nil)
  local traits = decision.environment and decision.environment.SLURM_SPANK_MALLEABLE_TRAITS
  local is_pool = (case.text or ""):find("engine=tasks") ~= nil
  local wanted = case.traits or (is_pool and "pool" or "gang+rounds+torchrun")
  check(case.name .. " (traits)", traits == wanted, traits)
  local notice = decision.environment and decision.environment.SLURM_SPANK_MALLEABLE_NOTICE_S
  check(case.name .. " (notice)", notice == (case.notice or "20"), notice)
  local farewell = decision.environment and decision.environment.SLURM_SPANK_MALLEABLE_FAREWELL_S
  check(case.name .. " (farewell)", farewell == case.farewell, farewell) -- else an older policy
end

-- Requests with sizes and manners: what the mark says of them, and what reaches the node.
local WISHES = {
  { name = "sizes", text = "2-16,sizes=2,4,8,16,prefer=8", mark = "allow=2+4+8+16,prefer=8}$",
    node = "2-16,unit=1,engine=torchrun,sizes=2,4,8,16,prefer=8" },
  { name = "doubled", text = "2-16,sizes=x2", mark = "allow=2+4+8+16}$",
    node = "2-16,unit=1,engine=torchrun,sizes=x2" },
  { name = "doubled from 3", text = "3-12,sizes=x2", mark = "allow=3+6+12}$",
    node = "3-12,unit=1,engine=torchrun,sizes=x2" },
  { name = "doubled, but not to MAX", text = "2-13,sizes=x2", mark = "max=8,.*allow=2+4+8}$",
    node = "2-8,unit=1,engine=torchrun,sizes=x2", frags = "0-7",
    note = "^note: MAX 13 is not among the sizes 2, 4, 8, so the job grows to 8 at most$" },
  { name = "doubled below a limit", text = "1-100,sizes=x2", mark = "max=64,.*+32+64}$",
    node = "1-64,unit=1,engine=torchrun,sizes=x2", note = "^note: MAX 100 is not among" },
  { name = "one size", text = "4-4,sizes=4", mark = "allow=4}$",
    node = "4-4,unit=1,engine=torchrun,sizes=4" },
  { name = "with a unit", text = "4-16,sizes=4,8,16,unit=4", mark = "allow=4+8+16}$",
    node = "4-16,unit=4,engine=torchrun,sizes=4,8,16" },
  { name = "without sizes", text = "2-16,prefer=5,min_run=10m", mark = "prefer=5,keep=600}$",
    node = "2-16,unit=1,engine=torchrun,prefer=5,min_run=600" },
  { name = "hours", text = "2-16,min_run=12h", mark = "keep=43200}$",
    node = "2-16,unit=1,engine=torchrun,min_run=43200" },
  { name = "seconds", text = "2-16,min_run=90s,launch=srun", mark = "not=%-,keep=90}$",
    node = "2-16,unit=1,engine=torchrun,launch=srun,min_run=90" },
}

for _, case in ipairs(WISHES) do
  local decision = submit(case)
  check(case.name .. " (no faults)", #decision.faults == 0, decision.faults)
  local set, environment = decision.set or {}, decision.environment or {}
  check(case.name .. " (mark)", (set.admin_comment or ""):find(case.mark:gsub("%+", "%%+")) ~= nil,
    set.admin_comment)
  check(case.name .. " (elements)", set.array_inx == (case.frags or set.array_inx), set.array_inx)
  check(case.name .. " (node)", environment.SLURM_SPANK_MALLEABLE == case.node, environment)
  local said = table.concat(decision.notes, "\n")
  check(case.name .. " (notes)", said:find(case.note or "^$") ~= nil, said)
  check(case.name .. " (again)", #submit({ text = case.node }).faults == 0)
end

-- Cores: all elements wait where the user's ordinary jobs do. ABSENT: the field is left alone.
local CORE_PARTS = { part_nodes = "parts", partitions = { "malleable", "parts" }, unfit = {} }
local CORE_GPUS = { tres_per_node = "gres:gpu:1", cpus_per_tres = "gres:gpu:8",
  mem_per_tres = "gres:gpu:1000" }
local CORES = {
  { name = "a core", mark = "engine=torchrun,core=2,lane=malleable,frags=16,lease=600,hole=120,",
    set = { partition = ABSENT, time_limit = ABSENT, qos = ABSENT, account = ABSENT, priority = 0,
      requeue = 1, array_inx = "0-15" },
    note = "^note: core=2 waits in main like any job, and the other nodes come from idle nodes" },
  { name = "it ends the job", text = "2-16,core=2,core_end=finish",
    mark = ",core=2,end=finish,lane=malleable,frags", set = {} },
  { name = "it does not", text = "2-16,core_end=stay,core=16", mark = ",core=16,lane=mall",
    set = {} },
  { name = "the user's partition, QOS, account and time", job = { partition = "main",
    qos = "normal", account = "lab", time_limit = 1 },
    policy = { qos = "scavenge", account = "spare" },
    set = { partition = "main", qos = ABSENT, account = ABSENT, time_limit = ABSENT },
    mark = "lane=malleable,frags=16,lease=600,hole=120," },
  { name = "a lane by name", job = { partition = "main,scavenge" },
    policy = { unfit = {} }, site = { parts = merge(PARTS, { scavenge = {} }) },
    set = { partition = "main" }, mark = "lane=scavenge," },
  { name = "several partitions by name", job = { partition = "long,malleable,main" },
    set = { partition = "long,main" }, mark = "lane=malleable," },
  { name = "what the site made of it", job = { partition = "main" },
    site = { partition = "long" }, set = { partition = "long" }, mark = "lane=malleable," },
  { name = "the site's partition for parts of nodes", policy = { part_nodes = "parts",
    partitions = { "malleable", "parts" } }, set = {}, mark = "lane=malleable," },
  { name = "the lease ends with the lane's limit", site = { parts = merge(PARTS, {
    malleable = { max_time = 4, total_nodes = 99 } }) }, job = { time_limit = 600 }, set = {},
    mark = "lease=240,hole=120," },
  { name = "a shortest hole of its own", job = { time_limit = 600, time_min = 5 },
    set = { time_min = NO_VAL }, mark = "lease=600,hole=300," },
  { name = "fragments of several nodes", text = "4-16,unit=4,core=8", set = { array_inx = "0-3" },
    mark = "core=8,lane=malleable,frags=4," },
  { name = "a pool", text = "0-16,engine=tasks,core=2", set = { array_inx = "0-15" },
    mark = "core=2,lane=malleable" },
  { name = "more time than its partition has", job = { time_limit = 600 }, set = {},
    site = { parts = merge(PARTS, { main = { max_time = 480, total_nodes = 99, flag_default = 1 }
    }) }, mark = "core=2,", note = "; with %-%-time=600 it may never start, as main "
      .. "allows 480 minutes$" },
  { name = "as much time as its partition has", job = { time_limit = 480 }, set = {},
    site = { parts = merge(PARTS, { main = { max_time = 480, total_nodes = 99, flag_default = 1 }
    }) }, mark = "core=2,", note = "from idle nodes in malleable$" },
  { name = "GPUs", text = "4-16,unit=2gpu,core=8", job = CORE_GPUS, policy = CORE_PARTS,
    site = { parts = merge(PARTS, { parts = { total_nodes = 3 } }) },
    set = { partition = ABSENT, tres_per_node = "gres:gpu:2", cpus_per_task = 16, min_cpus = 16,
      pn_min_memory = 2000, time_limit = ABSENT },
    mark = "unit=2,.*core=8,lane=parts,frags=7,.*slot=gpu%+cpu:8%+mem:1000}$",
    note = "waits in main like any job, and the other GPUs come from idle GPUs in parts$" },
  { name = "GPUs beside any of our lanes", text = "2-4,unit=gpu,core=2", job = merge(CORE_GPUS,
    { partition = "main,malleable" }), policy = CORE_PARTS, set = { partition = "main" },
    site = { parts = merge(PARTS, { parts = {} }) }, mark = "lane=parts," },
  { name = "in the lane, where QOS decide", job = { partition = "malleable" },
    policy = { by_qos = true, qos = "scavenge" }, set = { partition = "malleable", qos = ABSENT },
    mark = "lane=malleable,", note = "^note: core=2 waits in malleable like any job" },
  { name = "in a lane that is the default", policy = { by_qos = true, qos = "scavenge" },
    site = { parts = { malleable = { flag_default = 1 } } }, set = { partition = ABSENT },
    mark = "lane=malleable,", note = "^note: core=2 waits in malleable like any job" },
  { name = "less than MIN", text = "4-16,core=2", set = {}, mark = "core=2,",
    note = "a core below MIN 4 cannot run alone$" },
  { name = "all sizes", text = "2-16,core=4,sizes=x2,prefer=8,min_run=5m", set = {},
    mark = "core=4,lane=malleable,frags=16,.*allow=2%+4%+8%+16,prefer=8,keep=300}$" },
}

for _, case in ipairs(CORES) do
  case.text = case.text or "2-16,core=2"
  local decision = submit(case)
  check(case.name .. " (no faults)", #decision.faults == 0, decision.faults)
  local set = decision.set or {}
  for field, value in pairs(case.set) do
    local wanted = value
    if value == ABSENT then wanted = nil end
    check(case.name .. " (" .. field .. ")", set[field] == wanted, set[field])
  end
  check(case.name .. " (mark)", (set.admin_comment or ""):find(case.mark) ~= nil,
    set.admin_comment)
  check(case.name .. " (held)", set.priority == 0, set)
  local said = table.concat(decision.notes, "\n")
  check(case.name .. " (notes)", said:find(case.note or "^note: core=") ~= nil, said)
end

-- Nodes and tasks of scripts for rigid jobs, as sbatch 22.05 sends them: what is written for one
-- fragment instead, and what the user is told.
local RIGID = {
  { name = "one number of nodes", job = { min_nodes = 4, max_nodes = 4, min_cpus = 4 },
    cpus = 1, note = "^malleable: %-%-nodes=4 is replaced by %-%-malleable=2%-16$" },
  { name = "a range of nodes", job = { min_nodes = 2, max_nodes = 4, min_cpus = 1 },
    cpus = 1, note = "^malleable: %-%-nodes=2%-4 is replaced by" },
  { name = "a range of nodes with CPUs for each task", job = { min_nodes = 2, max_nodes = 4,
    min_cpus = 2, cpus_per_task = 2 }, cpus = 2, note = "%-%-nodes=2%-4 is replaced" },
  { name = "the same for fragments of two nodes", text = "2-16,unit=2", job = { min_nodes = 4,
    max_nodes = 8, min_cpus = 2, cpus_per_task = 2 }, cpus = 4, note = "%-%-nodes=4%-8 is repl" },
  { name = "CPUs of a number of nodes, not said per task", job = { min_nodes = 4, max_nodes = 4,
    min_cpus = 16 }, cpus = 4, note = "%-%-nodes=4 is replaced" },
  { name = "one task for each node", job = { min_nodes = 4, max_nodes = 4, num_tasks = 4,
    min_cpus = 16, cpus_per_task = 4 }, tasks = 1, cpus = 4,
    note = "^malleable: %-%-nodes=4 and %-%-ntasks=4 are replaced by %-%-malleable=2%-16$" },
  { name = "tasks that Slurm has counted", job = { min_nodes = 4, max_nodes = 4, num_tasks = 32,
    ntasks_per_node = 8, min_cpus = 64, cpus_per_task = 2 }, tasks = 8, cpus = 16,
    note = "^malleable: %-%-nodes=4 is replaced by" },
  { name = "the same in a range", job = { min_nodes = 2, max_nodes = 4, num_tasks = 4,
    ntasks_per_node = 2, min_cpus = 4 }, tasks = 2, cpus = 2, note = "%-%-nodes=2%-4 is replaced" },
  { name = "fewer tasks than the nodes could have", job = { min_nodes = 4, max_nodes = 4,
    num_tasks = 16, ntasks_per_node = 8, min_cpus = 16 }, tasks = 4, cpus = 4,
    note = "%-%-nodes=4 and %-%-ntasks=16 are replaced" },
  { name = "several tasks for each node", job = { min_nodes = 4.0, max_nodes = 4.0,
    num_tasks = 8.0, min_cpus = 8.0 }, tasks = 2, cpus = 2, note = "%-%-ntasks=8 are replaced" },
  { name = "overcommitted", job = { min_nodes = 4, max_nodes = 4, num_tasks = 16, min_cpus = 4 },
    tasks = 4, cpus = 1, note = "%-%-ntasks=16 are replaced" },
  { name = "tasks of the whole job", job = { num_tasks = 8, ntasks_per_node = 4, min_cpus = 8 },
    tasks = 4, cpus = 4, note = "^malleable: %-%-ntasks=8 is replaced by %-%-malleable=2%-16$" },
  { name = "fragments of two nodes", text = "2-16,unit=2", job = { min_nodes = 4, max_nodes = 4,
    num_tasks = 4, min_cpus = 4 }, tasks = 2, cpus = 2, note = "%-%-ntasks=4 are replaced" },
  { name = "the size of a fragment", text = "2-16,unit=2", job = { min_nodes = 2, max_nodes = 2,
    num_tasks = 2, min_cpus = 2 } },
  { name = "tasks that fit", job = { num_tasks = 4, ntasks_per_node = 4, min_cpus = 4 } },
  { name = "tasks alone", job = { num_tasks = 4, min_cpus = 4 } },
  { name = "GPUs of a fragment", job = { tres_per_job = "gres:gpu:8" } },
}

-- Jobs of whole nodes that ask for GPUs, where nodes have 4 or 8, and the kind a100 has 8.
local GPUS = { malleable = { gpu = { 4, 8 }, ["gpu:a100"] = { 8 } } }
local PARTS_GPUS = { gpus = GPUS, part_nodes = "parts", partitions = { "malleable", "parts" },
  unfit = {} }
local BETTER = "^note: the job asks for 1 GPU of each node, and gets whole nodes of 4 or 8 GPUs; "
local WASTED = {
  { name = "1 GPU of a node", job = { tres_per_node = "gres:gpu:1" }, policy = PARTS_GPUS,
    note = BETTER .. "write %-%-malleable=2%-16,unit=gpu$" },
  { name = "2 GPUs of a node", job = { tres_per_node = "gres/gpu=2" }, policy = PARTS_GPUS,
    note = "write %-%-malleable=4%-32,unit=2gpu$" },
  { name = "1 GPU of a node, in a pool", text = "0-8,engine=tasks", policy = PARTS_GPUS, job = {
    tres_per_node = "gres:gpu:1" }, note = "write %-%-malleable=0%-8,unit=gpu,engine=tasks$" },
  { name = "a kind that larger nodes have", job = { tres_per_node = "gres:gpu:a100:4" },
    policy = PARTS_GPUS, note = "asks for 4 GPUs of each node, and gets whole nodes of 8 GPUs; " },
  { name = "GPUs of a fragment of two nodes", text = "2-16,unit=2", policy = PARTS_GPUS, job = {
    tres_per_job = "gres:gpu:12" }, note = "6 GPUs .* of 8 GPUs; ask for all 8 GPUs of a node " },
  { name = "a GPU of each task", job = { tres_per_task = "gres:gpu:1", ntasks_per_node = 2 },
    policy = PARTS_GPUS, note = "asks for 2 GPUs of each node" },
  { name = "without parts", job = { tres_per_node = "gres:gpu:1" }, policy = { gpus = GPUS },
    note = BETTER .. "ask for all GPUs of the nodes instead, and use them in the script$" },
  { name = "a kind without parts", job = { tres_per_node = "gres:gpu:a100:2" },
    policy = { gpus = GPUS }, note = "ask for all 8 GPUs of a node instead, and" },
  { name = "sizes are of nodes", text = "2-16,sizes=x2", job = { tres_per_node = "gres:gpu:1" },
    policy = PARTS_GPUS, note = "; ask for all GPUs of the nodes instead, and" },
  { name = "a core has whole nodes", text = "2-16,core=2", job = { tres_per_node = "gres:gpu:1",
    partition = "main,malleable" }, policy = PARTS_GPUS, note = "; ask for all GPUs of the nodes" },
  { name = "more GPUs than a job may count", text = "2-800", job = { tres_per_node = "gres:gpu:2" },
    policy = merge(PARTS_GPUS, { max_fragments = 1000 }), note = "; ask for all GPUs of the nodes",
    site = { parts = { malleable = { max_time = INFINITE, total_nodes = 900 } } } },
  { name = "all GPUs of small nodes", job = { tres_per_node = "gres:gpu:4" }, policy = PARTS_GPUS },
  { name = "all GPUs of large nodes", job = { tres_per_node = "gres:gpu:8" }, policy = PARTS_GPUS },
  { name = "more GPUs than any node", job = { tres_per_node = "gres:gpu:9" }, policy = PARTS_GPUS },
  { name = "an unknown kind", job = { tres_per_node = "gres:gpu:v100:1" }, policy = PARTS_GPUS },
  { name = "no GPU", job = { tres_per_node = "gres:nvme:1" }, policy = PARTS_GPUS },
  { name = "no option", policy = PARTS_GPUS },
  { name = "unknown nodes", job = { tres_per_node = "gres:gpu:1" }, policy = {} },
  { name = "another partition", job = { tres_per_node = "gres:gpu:1" },
    policy = { gpus = { scavenge = GPUS.malleable } } },
}

-- More than any node has. Of a partition without `largest` some nodes may be unknown.
local LARGEST = { gpus = GPUS, largest = { malleable = { cpus = 64, memory = 500000 } } }
local TOO_LARGE = {
  { name = "memory", job = { min_mem_per_node = 921600 }, fault = "^%-%-mem=921600M: is more than "
    .. "any node of partition malleable has; write %-%-mem=500000M or less$" },
  { name = "memory of 8 CPUs", job = { min_mem_per_cpu = 100000, cpus_per_task = 8 },
    fault = "; write %-%-mem%-per%-cpu=62500M or less$" },
  { name = "CPUs", job = { cpus_per_task = 65 }, fault = "write %-%-cpus%-per%-task=64 or less$" },
  { name = "too many GPUs", job = { tres_per_node = "gres:gpu:9" },
    fault = "write %-%-gres=gpu:8 or less$" },
  { name = "GPUs of a kind", job = { tres_per_node = "gres:gpu:a100:9" },
    fault = "^%-%-gres=gpu:a100:9: .*write %-%-gres=gpu:a100:8 or less$" },
  { name = "no such GPU", job = { tres_per_node = "gres:gpu:v100:1" },
    fault = "^%-%-gres=gpu:v100: no node of partition malleable has such a GPU; drop the option$" },
  { name = "all of a node", job = { min_mem_per_node = 500000, cpus_per_task = 64,
    tres_per_node = "gres:gpu:8" } },
  { name = "nothing", job = { min_mem_per_node = 0, cpus_per_task = 65534,
    min_mem_per_cpu = 4294967294 } },
  { name = "unknown nodes", job = { min_mem_per_node = 921600 }, policy = { gpus = GPUS } },
}

for _, case in ipairs(TOO_LARGE) do
  case.policy = case.policy or LARGEST
  local decision = submit(case)
  check("needs: " .. case.name, (case.fault and #decision.faults == 1
    and decision.faults[1]:find(case.fault) or #decision.faults == 0 and not case.fault),
    decision.faults)
end

for _, case in ipairs(WASTED) do
  local decision = submit(case)
  check(case.name .. " (no faults)", #decision.faults == 0, decision.faults)
  local said = table.concat(decision.notes, "\n")
  check(case.name .. " (note)", said:find(case.note or "^$") ~= nil, said)
end

for _, case in ipairs(RIGID) do
  local decision = submit(case)
  local set = decision.set or {}
  check(case.name .. " (no faults)", #decision.faults == 0, decision.faults)
  check(case.name .. " (tasks)", set.num_tasks == case.tasks, set.num_tasks)
  check(case.name .. " (CPUs)", set.min_cpus == case.cpus, set.min_cpus)
  local told = decision.environment or {}
  local wanted = case.tasks and string.format("%d", case.tasks)
  check(case.name .. " (srun's)", told.SLURM_NTASKS == wanted and told.SLURM_NPROCS == wanted, told)
  local said = table.concat(decision.notes, "\n")
  check(case.name .. " (note)", said:find(case.note or "^$") ~= nil, said)
end

-- Parts of nodes: what an element waits with, what the mark says, and what the user is told.
local PARTS_POLICY = { part_nodes = "parts", partitions = { "malleable", "parts" },
  unfit = {} }
local PARTS_SITE = { parts = merge(PARTS, { parts = { max_time = INFINITE, total_nodes = 6 } }) }
local SLOTS = {
  { name = "one GPU", slot = "gpu", set = { partition = "parts", array_inx = "0-5", min_nodes = 1,
    max_nodes = 1, num_tasks = 1, cpus_per_task = 1, pn_min_cpus = 1, min_cpus = 1,
    pn_min_memory = 1, tres_per_node = "gres:gpu:1", tres_per_job = ABSENT, shared = ABSENT },
    frags = 6 },
  { name = "no more fragments than MAX needs", text = "2-4,unit=gpu", slot = "gpu", frags = 4 },
  { name = "two GPUs", text = "4-8,unit=2gpu", slot = "gpu", frags = 4, request = "4-8,unit=2gpu",
    set = { tres_per_node = "gres:gpu:2", min_nodes = 1 } },
  { name = "a pool has several parts of a node", text = "0-64,unit=gpu,engine=tasks", slot = "gpu",
    frags = 64 },
  { name = "up to max_workers", text = "0-1000,unit=gpu,engine=tasks", slot = "gpu", frags = 1000 },
  { name = "up to the QOS's submit limit", text = "0-64,unit=gpu,engine=tasks", slot = "gpu",
    site = { qos = "small" }, policy = { submit_limits = LIMITED.submit_limits }, frags = 8,
    note = "^note: the job has 8 fragments instead of 64: QOS small lets a user submit 8 jobs" },
  { name = "and to what the site allows", text = "0-1000,unit=gpu,engine=tasks", slot = "gpu",
    policy = { max_array_size = 301 }, frags = 301 },
  { name = "a pool of pairs", text = "0-1000,unit=2task,engine=tasks",
    slot = "cpu:1", frags = 500 },
  { name = "a gang on many nodes", text = "4-1000,unit=gpu", slot = "gpu", frags = 64, site = {
    parts = { parts = { max_time = INFINITE, total_nodes = 900 } } } },
  { name = "a partition that Lua does not see", site = { parts = {} }, slot = "gpu", frags = 64 },
  { name = "a MIN beyond the nodes", text = "40-64,unit=gpu", slot = "gpu", frags = 6 },
  { name = "another partition of ours", job = { partition = "malleable" }, slot = "gpu",
    set = { partition = "parts" } },
  { name = "several partitions", job = { partition = "main,malleable" }, slot = "gpu",
    set = { partition = "parts" }, note = "^note: .* runs in parts only$" },
  { name = "the site's own choice", site = { partition = "malleable" }, slot = "gpu",
    set = { partition = "parts" } },
  { name = "a QOS for parts", slot = "gpu", job = { partition = "long", qos = "scavenge" },
    policy = { part_nodes = ABSENT, parts_qos = "low", qos = "scavenge",
      partitions = { "malleable", "long" } }, site = { parts = { long = { total_nodes = 3 } } },
    set = { partition = "long", qos = "low" }, frags = 3 },
  { name = "its own share of CPUs and memory", slot = "gpu+cpu:8+mem:61440", job = {
    cpus_per_tres = "gres:gpu:8", mem_per_tres = "gres:gpu:61440" }, set = { cpus_per_task = 8,
    pn_min_cpus = 8, min_cpus = 8, pn_min_memory = 61440, cpus_per_tres = "", mem_per_tres = "" } },
  { name = "a kind of GPU", slot = "gpu:a100", job = { tres_per_node = "gres:gpu:a100:1" },
    set = { tres_per_node = "gres:gpu:a100:1" } },
  { name = "a kind as later releases say it", slot = "gpu:a100", job = {
    tres_per_node = "gres/gpu:a100=1" }, set = { tres_per_node = "gres:gpu:a100:1" } },
  { name = "a kind alone", slot = "gpu:a100", job = { tres_per_node = "gres:gpu:a100" } },
  { name = "a GPU without a number", slot = "gpu", job = { tres_per_node = "gres:gpu" } },
  { name = "GPUs of a node", slot = "gpu", job = { tres_per_node = "gres:gpu:8" },
    set = { tres_per_node = "gres:gpu:1" },
    note = "^malleable: gpu:8 of each node is replaced by %-%-malleable=4%-64,unit=gpu$" },
  { name = "GPUs of the job", slot = "gpu:h100", job = { tres_per_job = "gres:gpu:h100:64" },
    set = { tres_per_node = "gres:gpu:h100:1", tres_per_job = "" },
    note = "^malleable: %-%-gpus=64 is replaced by" },
  { name = "a GPU of a task", slot = "gpu+cpu:6", job = { tres_per_task = "gres:gpu:1",
    num_tasks = 4, cpus_per_task = 6, min_cpus = 24 }, set = { tres_per_task = "",
    cpus_per_task = 6, min_cpus = 6 }, note = "^malleable: each GPU comes with 6 CPUs$" },
  { name = "a GPU of a task, 24.11", slot = "gpu+cpu:6", job = { cpus_per_task = 6, num_tasks = 4,
    tres_per_task = "cpu=6,gres/gpu:1" }, note = "6 CPUs$" },
  { name = "two GPUs of a task", text = "4-64,unit=2gpu", slot = "gpu", job = {
    tres_per_task = "gres:gpu:2", num_tasks = 4 } },
  { name = "a whole rigid script", slot = "gpu+cpu:8+mem:61440", job = { min_nodes = 4,
    max_nodes = 4, num_tasks = 32, ntasks_per_node = 8, cpus_per_task = 8, min_cpus = 256,
    tres_per_node = "gres:gpu:8", min_mem_per_node = 491520 }, set = { ntasks_per_node = NO_VAL16,
    num_tasks = 1, cpus_per_task = 8 }, note = "^malleable: %-%-nodes=4 and "
      .. "%-%-ntasks%-per%-node=8 and gpu:8 of each node are replaced by .*\n"
      .. "malleable: each GPU comes with 8 CPUs and 61440 MiB$" },
  { name = "one agent a node", slot = "gpu+cpu:8", job = { min_nodes = 2, max_nodes = 2,
    num_tasks = 2, ntasks_per_node = 1, cpus_per_task = 64, tres_per_node = "gres:gpu:8" },
    note = "each GPU comes with 8 CPUs$" },
  { name = "tasks on nodes", slot = "gpu+cpu:4", job = { min_nodes = 2, max_nodes = 2,
    num_tasks = 16, cpus_per_task = 4, tres_per_node = "gres:gpu:8" }, note = "4 CPUs$" },
  { name = "all the memory", slot = "gpu", job = { min_mem_per_node = 0 },
    note = "^malleable: %-%-mem=0 is replaced by" },
  { name = "CPUs of a node", slot = "gpu", job = { pn_min_cpus = 16 }, set = { pn_min_cpus = 1 },
    note = "%-%-mincpus=16 is replaced" },
  { name = "memory by CPU", slot = "gpu+cpu:8+mem:16384", job = { cpus_per_tres = "gres:gpu:8",
    min_mem_per_cpu = 2048 }, note = "with 16384 MiB$" },
  { name = "no sockets or threads asked for", slot = "gpu", job = { threads_per_core = NO_VAL16,
    sockets_per_node = NO_VAL16, cores_per_socket = NO_VAL16, core_spec = NO_VAL16 } },
  { name = "shared nodes asked for", slot = "gpu", job = { shared = 1 },
    set = { shared = NO_VAL16 } },
  { name = "a task", text = "0-64,unit=task,engine=tasks", slot = "cpu:1", frags = 64,
    request = "0-64,unit=task,engine=tasks", set = { cpus_per_task = 1, tres_per_node = ABSENT,
      pn_min_memory = 1 } },
  { name = "a larger task", text = "0-64,unit=task,engine=tasks", slot = "cpu:4+mem:8192",
    job = { cpus_per_task = 4, min_mem_per_cpu = 2048, min_cpus = 4, pn_min_cpus = 4,
      tres_per_task = "cpu:4" }, set = { cpus_per_task = 4, min_cpus = 4, pn_min_memory = 8192,
      tres_per_task = "" } },
  { name = "as many tasks as a rigid script", text = "4-64,unit=4task", slot = "cpu:1",
    job = { num_tasks = 64 }, frags = 6,
    note = "^malleable: %-%-ntasks=64 is replaced by %-%-malleable=4%-64,unit=4task$" },
  { name = "no GPUs asked for by number", text = "0-64,unit=task,engine=tasks", slot = "cpu:1",
    job = { tres_per_node = "gres:gpu:0" }, set = { tres_per_node = "" } },
}

local function submit_part(case)
  return submit({ text = case.text or "4-64,unit=gpu", job = case.job,
    policy = merge(PARTS_POLICY, case.policy), site = merge(PARTS_SITE, case.site) })
end

for _, case in ipairs(SLOTS) do
  local decision = submit_part(case)
  local set = decision.set or {}
  check(case.name .. " (no faults)", #decision.faults == 0, decision.faults)
  for field, value in pairs(case.set or {}) do
    local wanted = value
    if value == ABSENT then wanted = nil end
    check(case.name .. " (" .. field .. ")", set[field] == wanted, set[field])
  end
  local mark = set.admin_comment or ""
  check(case.name .. " (slot)", mark:match(",slot=([^}]*)}$") == case.slot, mark)
  if case.frags then
    check(case.name .. " (fragments)", mark:find(",frags=" .. case.frags .. ",", 1, true), mark)
    check(case.name .. " (elements)", set.array_inx == "0-" .. case.frags - 1, set.array_inx)
  end
  local told = decision.environment or {}
  check(case.name .. " (srun's)", told.SLURM_NTASKS == "1" and told.SLURM_NPROCS == "1", told)
  local counts_tasks = (case.text or ""):find("task,") or (case.text or ""):find("task$")
  check(case.name .. " (CPUs of the task)", told.SLURM_CPUS_PER_TASK == (counts_tasks
    and string.format("%d", set.cpus_per_task) or nil), told)
  local told_slot = told.SLURM_SPANK_MALLEABLE_SLOT
  check(case.name .. " (slot in the job)", told_slot == case.slot, told_slot)
  local text = told.SLURM_SPANK_MALLEABLE or ""
  check(case.name .. " (text)", text:find(case.request or "", 1, true) == 1, text)
  local said = table.concat(decision.notes, "\n")
  check(case.name .. " (notes)", said:find(case.note or "^$") ~= nil, said)
end

-- What has no meaning for parts of nodes: the fault, as a pattern.
local NO_SLOTS = {
  { name = "a core with a share of its node", text = "4-8,unit=gpu,core=2",
    fault = "core=2 .* with each GPU; write %-%-gres=gpu:1 %-%-cpus%-per%-gpu=N "
      .. "%-%-mem%-per%-gpu=SIZE$" },
  { name = "a core of tasks with a share of its node", text = "0-8,unit=task,engine=tasks,core=2",
    fault = "core=2 .* with each task; write %-%-mem%-per%-cpu=SIZE$" },
  { name = "a core with more fragments than jobs", text = "4-64,unit=gpu,core=12",
    site = { qos = "small" }, policy = { submit_limits = LIMITED.submit_limits },
    fault = "core=12 needs 12 fragments, and QOS small lets a user submit 8 jobs; write " },
  { name = "not offered", policy = { part_nodes = ABSENT },
    fault = "^%-%-malleable: parts of nodes are not offered here; leave unit=gpu out or write "
      .. "unit=N, and count nodes$" },
  { name = "not offered, whatever else is wrong", policy = { part_nodes = ABSENT },
    job = { cpus_per_task = 8 }, fault = "^%-%-malleable: parts of nodes are not offered here; " },
  { name = "whole nodes in that partition", text = "2-4", job = { partition = "parts" },
    fault = "^%-%-partition=parts: is only for parts of nodes.*write %-%-partition=malleable$" },
  { name = "whole nodes elsewhere", text = "2-4", job = { partition = "main" },
    fault = "^%-%-partition=main: malleable jobs run in malleable; .*=malleable$" },
  { name = "another partition", job = { partition = "main" },
    fault = "run in malleable or parts; drop" },
  { name = "no preemption there", policy = { unfit = { parts = "PreemptMode=OFF: never" } },
    fault = "^%-%-partition=parts: malleable jobs cannot run there%. PreemptMode=OFF: never%. " },
  { name = "no preemption of the QOS for parts", policy = { part_nodes = ABSENT, qos = "scavenge",
    parts_qos = "low", unfit = { low = "QOS low: never" } },
    fault = "^%-%-partition=malleable: malleable jobs cannot run there%. QOS low: never%. " },
  { name = "more GPUs than workers", text = "4-2000,unit=gpu",
    fault = "1000 GPUs .* here %(max_workers%); write %-%-malleable=4%-1000,unit=gpu$" },
  { name = "more tasks", text = "4-2000,unit=4task",
    fault = "1000 tasks .*write %-%-malleable=4%-1000,unit=4task$" },
  { name = "no multiples", text = "3-9,unit=2gpu", fault = "write %-%-malleable=4%-8,unit=2gpu$" },
  { name = "a gang of no GPUs", text = "0-8,unit=2gpu",
    fault = "write %-%-malleable=2%-8,unit=2gpu$" },
  { name = "an odd unit", text = "2-8,unit=2cpu", fault = "'2cpu' is not a usable unit" },
  { name = "a unit of nothing", text = "2-8,unit=0gpu", fault = "count GPUs from 1 to 65535" },
  { name = "two units", text = "2-8,unit=gpu,unit=task", fault = "unit is given twice" },
  { name = "an engine whose fragments must be alike", text = "4-8,unit=gpu,engine=torchft",
    policy = { engines = { torchft = "torchrun" } },
    fault = "engine=torchft needs fragments of equal size; leave unit=gpu out and count nodes$" },
  { name = "exclusive", job = { shared = 0 },
    fault = "^%-%-exclusive: .*drop %-%-exclusive, or the unit$" },
  { name = "exclusive to a user", job = { shared = 2 }, fault = "^%-%-exclusive: " },
  { name = "CPUs of a task that may be a node's", job = { cpus_per_task = 8 },
    fault = "^%-%-cpus%-per%-task=8: .*write %-%-gres=gpu:1 %-%-cpus%-per%-gpu=N$" },
  { name = "CPUs that do not come out even", job = { cpus_per_task = 7, tres_per_node =
    "gres:gpu:8" }, fault = "^%-%-cpus%-per%-task=7: .*write %-%-cpus%-per%-gpu=N$" },
  { name = "tasks that may be on any nodes", job = { cpus_per_task = 8, num_tasks = 8,
    tres_per_node = "gres:gpu:8" }, fault = "^%-%-cpus%-per%-task=8: " },
  { name = "memory of a node", job = { min_mem_per_node = 1024 },
    fault = "^%-%-mem: .*write %-%-gres=gpu:1 %-%-mem%-per%-gpu=SIZE$" },
  { name = "memory of a node beside GPUs", job = { min_mem_per_node = 1024,
    tres_per_job = "gres:gpu:8" }, fault = "^%-%-mem: .*write %-%-mem%-per%-gpu=SIZE$" },
  { name = "memory of a CPU", job = { min_mem_per_cpu = 1024 }, fault = "^%-%-mem%-per%-cpu: " },
  { name = "several GPUs of a task", job = { tres_per_task = "gres:gpu:2", num_tasks = 4 },
    fault = "^%-%-gpus%-per%-task=2: .*write unit=2gpu$" },
  { name = "two kinds", job = { tres_per_node = "gres:gpu:a100:1,gres:gpu:h100:1" },
    fault = "names GPUs twice; write a single kind of GPU$" },
  { name = "two kinds in two options", job = { tres_per_node = "gres:gpu:a100:1",
    tres_per_job = "gres:gpu:h100:1" }, fault = "kinds a100 and h100 differ" },
  { name = "something else", job = { tres_per_node = "gres:gpu:1,gres:shard:2" },
    fault = "=gres:shard:2: with unit=gpu and unit=task this option takes whole GPUs" },
  { name = "mps", job = { tres_per_node = "gres:mps:50" }, fault = "whole GPUs only; write gpu:N" },
  { name = "a slice", job = { tres_per_node = "gres:gpu:a100_1g.5gb:1" },
    fault = "slices of a GPU" },
  { name = "a slice by another name", job = { tres_per_node = "gres:gpu:1g.10gb:1" },
    fault = "slices of a GPU" },
  { name = "a text that is none", job = { tres_per_node = "gres:gpu:a:b:c" },
    fault = "whole GPUs" },
  { name = "a number that is none", job = { tres_per_node = "gres:gpu:9999999999999" },
    fault = "whole GPUs" },
  { name = "by socket", job = { tres_per_socket = "gres:gpu:1" },
    fault = "^%-%-gpus%-per%-socket" },
  { name = "tasks by GPU", job = { ntasks_per_tres = 1 }, fault = "^%-%-ntasks%-per%-gpu: " },
  { name = "single threads", job = { threads_per_core = 1 },
    fault = "^%-%-threads%-per%-core: fragments get free CPUs.*drop it$" },
  { name = "sockets", job = { sockets_per_node = 2 }, fault = "^%-%-sockets%-per%-node: " },
  { name = "cores of a socket", job = { cores_per_socket = 2 },
    fault = "^%-%-cores%-per%-socket: " },
  { name = "specialized cores", job = { core_spec = 2 }, fault = "^%-%-core%-spec: " },
  { name = "too many CPUs", job = { cpus_per_tres = "gres:gpu:70000" },
    fault = "^%-%-cpus%-per%-gpu: is out of range; write 1 to 65533$" },
  { name = "GPUs of tasks without any", text = "4-8,unit=task", job = { tres_per_node =
    "gres:gpu:1" }, fault = "^%-%-gpus: the tasks of unit=task have no GPUs; write unit=gpu" },
  { name = "memory of a node, by task", text = "4-8,unit=task", job = { min_mem_per_node = 9 },
    fault = "^%-%-mem: .*write %-%-mem%-per%-cpu=SIZE$" },
  { name = "workers by number", job = { script = "#!/bin/sh\ntorchrun --nproc-per-node=8 t.py\n" },
    fault = "^torchrun %-%-nproc%-per%-node=8: .*write %-%-nproc%-per%-node=gpu, or drop it$" },
  { name = "workers of the unit, although a fragment may have more", text = "4-8,unit=2gpu",
    job = { script = "#!/bin/sh\ntorchrun --nproc-per-node=2 t.py\n" },
    fault = "^torchrun %-%-nproc%-per%-node=2: " },
  { name = "workers by number, otherwise",
    job = { script = "#!/bin/sh\nsrun python -m torch.distributed.run --nproc_per_node 8 t.py\n" },
    fault = "^torchrun %-%-nproc%-per%-node=8: " },
  { name = "workers that are alike",
    job = { script = "#!/bin/sh\nexport TORCH_ELASTIC_WORKER_IDENTICAL=1\ntorchrun t.py\n" },
    fault = "^TORCH_ELASTIC_WORKER_IDENTICAL=1: .*drop it$" },
}

for _, case in ipairs(NO_SLOTS) do
  local faults = submit_part(case).faults
  check(case.name .. " (count)", #faults == 1, faults)
  check(case.name .. " (fault)", (faults[1] or ""):find(case.fault) ~= nil, faults)
  for advice in (faults[1] or ""):gmatch("write (%-%-malleable=%S+)") do
    local advised = submit_part({ text = advice:gsub("^%-%-malleable=", "") }).faults
    check(case.name .. " (advice " .. advice .. ")", #advised == 0, advised)
  end
end

-- Scripts that fit parts of nodes.
for _, case in ipairs({
  { "torchrun --nproc-per-node=gpu t.py" }, { "torchrun t.py --nproc-per-node" },
  { "torchrun --nproc-per-node=$N t.py" }, { "python t.py --nproc-per-node=8; torchrun t.py" },
  { "torchrun --nproc-per-node=2 t.py", text = "2-2,unit=2gpu" },
  { "torchrun --nproc-per-node=1 t.py" }, -- a process that uses all GPUs
  { "torchrun --nproc-per-node=8 t.py", text = "4-8,unit=task" },
  { "torchrun --nproc-per-node=8 t.py", text = "4-8" },
  { "# export TORCH_ELASTIC_WORKER_IDENTICAL=1\ntorchrun t.py" },
}) do
  local decision = submit_part({ text = case.text,
    job = { script = "#!/bin/sh\n" .. case[1] .. "\n" } })
  check("script " .. case[1], #decision.faults == 0, decision.faults)
end

-- Lists of partitions: the first of ours, and those that are not ours.
for _, case in ipairs({
  { "main", nil, "main" }, { "malleable", "malleable", nil },
  { "gpu,scavenge,malleable,long", "scavenge", "gpu,long" }, { ",malleable,", "malleable", nil },
  { "malleable2,Malleable", nil, "malleable2,Malleable" }, { "", nil, nil },
}) do
  local lane, rest = place_module.split_partitions(case[1], POLICY.partitions)
  check("split " .. case[1], lane == case[2] and rest == case[3], { lane, rest })
end

-- Unsound submissions: the faults in order, each as a pattern.
local UNSOUND = {
  { name = "sizes of a pool", text = "2-8,engine=tasks,sizes=2,4,8,prefer=4",
    faults = { "^%-%-malleable: sizes are for fragments that train together, and a pool may "
      .. "have any number of workers; write %-%-malleable=2%-8,engine=tasks,prefer=4$" } },
  { name = "core of nothing", text = "2-4,core=0", faults = { "'0' is not a usable core; wri" } },
  { name = "core above MAX", text = "2-4,core=5",
    faults = { "core=5 must be at most MAX 4; write core=4$" } },
  { name = "core that is no multiple", text = "4-8,unit=4,core=2",
    faults = { "core=2 must be a multiple of unit 4 and at most MAX 8; write core=4$" } },
  { name = "core that is no size", text = "2-8,sizes=2,4,8,core=5",
    faults = { "core=5 must be one of the sizes; write core=4$" } },
  { name = "core above doubled sizes", text = "2-13,sizes=x2,core=13",
    faults = { "core=13 must be one of the sizes; write core=8$" } },
  { name = "core that ends without being", text = "2-4,core_end=finish",
    faults = { "core_end=finish needs a core; write core=N with it, or leave it out$" } },
  { name = "core that ends oddly", text = "2-4,core=2,core_end=die",
    faults = { "'die' is not a usable core_end; write core_end=stay or core_end=finish$" } },
  { name = "core that gets notice as it starts", text = "2-4,core=2",
    job = { time_limit = 10 }, policy = { notices = { malleable = 300 } },
    faults = { "^%-%-time=10: a core gets notice 300 seconds before its end here, which is "
      .. "at least half of its time; write %-%-time=11 or more$" } },
  { name = "core in the lane alone", text = "2-4,core=2", job = { partition = "malleable" },
    faults = { "core=2 waits in an ordinary partition, and malleable is for malleable jobs; "
      .. "write %-%-partition=main,malleable$" } },
  { name = "core with a lane as default", text = "2-4,core=2", site = { parts = { malleable = {
    flag_default = 1 } } }, faults = { "write %-%-partition=NAME,malleable$" } },
  { name = "core with the lane for parts of nodes", text = "2-4,core=2",
    job = { partition = "parts,main" }, policy = { part_nodes = "parts",
    partitions = { "malleable", "parts" } },
    faults = { "^%-%-partition=parts: is only for parts of" } },
  { name = "core beside a lane that the user may not use", text = "2-4,core=2",
    job = { partition = "main" }, site = { parts = { main = { total_nodes = 9 } } },
    faults = { "^%-%-malleable: core=2: Slurm has no partition malleable for you; ask" } },
  { name = "core above its partition", text = "2-16,core=8", job = { partition = "main" },
    site = { parts = merge(PARTS, { main = { total_nodes = 4 } }) },
    faults = { "core=8 is more than the 4 nodes of partition main; write a smaller core$" } },
  { name = "core in the site's QOS", text = "2-4,core=2", policy = { qos = "scavenge" },
    job = { qos = "scavenge" }, faults = { "^%-%-qos=scavenge: is for malleable jobs, whose "
      .. "nodes other jobs may take, but a core keeps its nodes; write %-%-qos=NAME with " } },
  { name = "core of a user who has the site's QOS by default", text = "2-4,core=2",
    policy = { qos = "scavenge" }, site = { default_qos = "scavenge" },
    faults = { "^%-%-qos=scavenge: .* a core keeps its nodes; write %-%-qos=NAME with " } },
  { name = "core and what else is wrong", text = "2-4,core=5", job = { partition = "main",
    qos = "normal", time_limit = 1 }, policy = { qos = "scavenge" },
    faults = { "core=5 must be" } },
  { name = "sizes that fall", text = "2-8,sizes=8,4,2",
    faults = { "'8,4,2' is not a usable sizes; write sizes=x2, or up to 16 sizes from small" } },
  { name = "sizes given twice", text = "2-4,sizes=2,2,4", faults = { "'2,2,4' is not a usable" } },
  { name = "tripled sizes", text = "2-4,sizes=x3", faults = { "'x3' is not a usable sizes" } },
  { name = "more sizes than a mark holds", faults = { "not a usable sizes; write sizes=x2, or up" },
    text = "1-17,sizes=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17" },
  { name = "sizes without MIN", text = "2-8,sizes=4,8", faults = { "sizes=4,8 must begin with MIN "
    .. "2 and end with MAX 8; write %-%-malleable=4%-8,sizes=4,8$" } },
  { name = "sizes without MAX", text = "2-9,sizes=2,4,8,core=2",
    faults = { "write %-%-malleable=2%-8,core=2,sizes=2,4,8$" } },
  { name = "sizes of no multiple", text = "2-8,unit=2,sizes=2,3,8",
    faults = { "size 3 is no multiple of unit 2; write %-%-malleable=2%-8,unit=2,sizes=2,8$" } },
  { name = "doubled nothing", text = "0-8,engine=nosuch,sizes=x2",
    faults = { "sizes=x2 doubles MIN, which is 0; write a MIN of 1 or more$", "nosuch is not" } },
  { name = "sizes above a limit", text = "2-128,sizes=2,8,64,128,prefer=64,core=8,min_run=60",
    faults = { "128 fragments.*=2%-64,core=8,sizes=2,8,64,prefer=64,min_run=60$" } },
  { name = "doubled sizes above a limit", text = "2-256,sizes=x2,prefer=128,launch=srun",
    faults = { "256 fragments.*=2%-64,launch=srun,sizes=x2$" } },
  { name = "a larger unit beside a core", text = "2-128,core=2,launch=srun",
    faults = { "write %-%-malleable=2%-64,launch=srun,core=2$" } },
  { name = "no such size to prefer", text = "2-16,sizes=2,4,16,prefer=8",
    faults = { "prefer=8 is not a size that the job may have; write prefer=4$" } },
  { name = "no such number to prefer", text = "2-16,prefer=17", faults = { "write prefer=16$" } },
  { name = "no multiple to prefer", text = "4-16,unit=4,prefer=2", faults = { "write prefer=4$" } },
  { name = "an endless run", text = "2-16,min_run=13h",
    faults = { "'13h' is not a usable min_run; write min_run=10m .1s to 12h.$" } },
  { name = "a run of nothing", text = "2-16,min_run=0", faults = { "not a usable min_run" } },
  { name = "a run of days", text = "2-16,min_run=1d", faults = { "not a usable min_run" } },
  { name = "licences", job = { licenses = "fs:2" },
    faults = { "^%-%-licenses=fs:2: .*wait for this job's licences; drop it" } },
  { name = "a user who is not named", policy = { users = { [1001] = true } },
    site = { user = 1002 }, job = { qos = "normal" }, faults = { "^%-%-malleable: malleable jobs "
      .. "are for some users only here; submit without .* into users in the section %[site%]" } },
  { name = "a user whose uid is unknown", policy = { users = { [1001] = true } },
    faults = { "for some users only here" } },
  { name = "another QOS", policy = { qos = "scavenge" }, job = { qos = "normal" },
    faults = { "^%-%-qos=normal: malleable jobs have QOS scavenge here.*drop %-%-qos$" } },
  { name = "another account", policy = { account = "spare" }, job = { account = "lab" },
    faults = { "^%-%-account=lab: malleable jobs are charged to account spare here; drop" } },
  { name = "a MIN beyond the QOS's submit limit", text = "10-16", policy = merge(LIMITED,
    { qos = "small" }), faults = { "^%-%-malleable: MIN 10 needs 10 fragments, and QOS small lets "
      .. "a user submit 8 jobs; write %-%-malleable=8%-8$" } },
  { name = "a core beyond it", text = "2-16,core=10", site = { qos = "small" },
    job = { partition = "main" }, policy = LIMITED,
    faults = { "core=10 needs 10 fragments, and QOS small .*write %-%-malleable=2%-8$" } },
  { name = "the same with srun", text = "12-24,launch=srun", policy = merge(LIMITED,
    { qos = "small" }), faults = {
      "write %-%-malleable=8%-8,launch=srun or %-%-malleable=12%-24,unit=3,launch=srun$" } },
  { name = "more parts than any request has", text = "1-2" .. (",x"):rep(50000),
    faults = { "^%-%-malleable: '1%-2,x,x.*%.%.%.' is longer than 200 characters" } },
  { name = "MIN above MAX", text = "8-4", faults = { "write %-%-malleable=4%-8$" } },
  { name = "zero MIN", text = "0-4",
    faults = { "only pools %(engine=tasks%) may have MIN 0; with engine=torchrun write .*1%-4$" } },
  { name = "zero MIN with a unit", text = "0-5,unit=2,launch=srun",
    faults = { "only pools .*may have MIN 0.*write %-%-malleable=2%-4,unit=2,launch=srun$" } },
  { name = "zero MIN, unit above MAX", text = "0-1,unit=2",
    faults = { "only pools .*may have MIN 0.*=2%-2,unit=2$" } },
  { name = "zero MIN beyond the limit", text = "0-5000",
    faults = { "only pools .*may have MIN 0.*=1%-64$" } },
  { name = "zero MIN, no pools here", text = "0-4",
    policy = { engines = { torchrun = "gang+torchrun" } },
    faults = { "MIN 0, and pools are not offered here; .*=1%-4$" } },
  { name = "a pool that is not offered", text = "0-4,engine=tasks",
    policy = { engines = { torchrun = "gang+torchrun" } },
    faults = { "engine tasks is not offered here; write engine=torchrun$" } },
  { name = "a pool of no workers", text = "0-0,engine=tasks", faults = { "from 1 to 65535" } },
  { name = "a pool beyond max_workers", text = "0-1024,engine=tasks", faults = {
    "1024 fragments, and a job may have 1000 here %(max_workers%); .*=0%-1000,engine=tasks$" } },
  { name = "a pool beyond max_nodes", text = "0-2000,engine=tasks",
    faults = { "1024 nodes.*=0%-1000,engine=tasks$" } },
  { name = "a pool beyond MaxArraySize", text = "0-600,engine=tasks",
    policy = { max_array_size = 500 }, faults = { "MaxArraySize%); .*=0%-500,engine=tasks$" } },
  { name = "a pool with a unit", text = "0-512,unit=2,engine=tasks",
    faults = { "%(max_fragments%); write %-%-malleable=0%-128,unit=2,engine=tasks or "
      .. "%-%-malleable=0%-512,unit=8,engine=tasks$" } },
  { name = "a pool of no multiples", text = "0-9,unit=4,engine=tasks",
    faults = { "=0%-8,unit=4,engine=tasks$" } },
  { name = "a pool of less than a unit", text = "0-1,unit=4,engine=tasks",
    faults = { "=0%-4,unit=4,engine=tasks$" } },
  { name = "zero MAX", text = "0-0", faults = { "count nodes from 1.*=1%-1$" } },
  { name = "zero unit", text = "1-4,unit=0", faults = { "count nodes from 1" } },
  { name = "beyond 16 bits", text = "1-99999", faults = { "from 1 to 65535; .*=1%-64$" } },
  { name = "beyond max_nodes", text = "1-2000", faults = { "1024 nodes.*=1%-64$" } },
  { name = "beyond max_nodes with a unit", text = "1-2000,unit=16",
    faults = { "=16%-1024,unit=16$" } },
  { name = "unit beyond max_nodes", text = "2000-2000,unit=2000", faults = { "smaller unit$" } },
  { name = "more than max_fragments", text = "2-128",
    faults = { "128 fragments.*64 here %(max_fragments%); write %-%-malleable=2%-64$" } },
  { name = "launch=srun may use a unit", text = "2-128,launch=srun",
    faults = { "or %-%-malleable=2%-128,unit=2,launch=srun$" } },
  { name = "no unit divides", text = "3-127,launch=srun", faults = { "=3%-64,launch=srun$" } },
  { name = "a unit may be larger", text = "16-512,unit=2",
    faults = { "write %-%-malleable=16%-128,unit=2 or %-%-malleable=16%-512,unit=8$" } },
  { name = "MaxArraySize", text = "2-12", policy = { max_array_size = 10 },
    faults = { "MaxArraySize%); write %-%-malleable=2%-10$" } },
  { name = "not multiples", text = "3-9,unit=4", faults = { "=4%-8,unit=4$" } },
  { name = "unit above MAX", text = "1-2,unit=8", faults = { "=8%-8,unit=8$" } },
  { name = "unknown engine", text = "1-2,engine=foo",
    faults = { "engine foo .*write engine=tasks or engine=torchrun$" } },
  { name = "no text", text = "", faults = { "is not MIN%-MAX" } },
  { name = "one number", text = "4", faults = { "'4' is not MIN%-MAX" } },
  { name = "negative", text = "-1-4", faults = { "is not MIN%-MAX" } },
  { name = "hexadecimal and spaces", text = " 0x2-4", faults = { "is not MIN%-MAX" } },
  { name = "huge number", text = "1-123456789012345678901", faults = { "is not MIN%-MAX" } },
  { name = "all keys wrong", text = "1-2,foo=1,unit=x,engine=A,launch=mpirun,,unit", faults = {
    "cannot read 'foo=1'", "'x' is not a usable unit", "'A' is not a usable engine",
    "'mpirun' is not a usable launch", "cannot read ''", "cannot read 'unit'" } },
  { name = "key twice", text = "1-2,unit=1,unit=2", faults = { "unit is given twice" } },
  { name = "engine with an odd name", text = "1-2,engine=x{y}",
    faults = { "not a usable engine" } },
  { name = "long engine", text = "1-2,engine=" .. ("a"):rep(33),
    faults = { "not a usable engine" } },
  { name = "array", job = { array_inx = "0-3" }, faults = { "^%-%-array:" } },
  { name = "het job", job = { het_job_offset = 0 }, faults = { "^heterogeneous" } },
  { name = "scrontab", job = { cron_job = true }, faults = { "^scrontab" } },
  { name = "no-requeue", job = { requeue = 0 }, faults = { "^%-%-no%-requeue:" } },
  { name = "singleton", job = { dependency = "afterok:1,Singleton" }, faults = { "=singleton:" } },
  { name = "expand", job = { dependency = "expand:12" }, faults = { "=expand:" } },
  { name = "a hold", job = { priority = 0 }, faults = { "^%-%-hold:" } },
  { name = "begin", job = { begin_time = 1700000000 }, faults = { "^%-%-begin:" } },
  { name = "nodelist", job = { req_nodes = "n1" }, faults = { "^%-%-nodelist:" } },
  { name = "aftercorr", job = { dependency = "aftercorr:12" }, faults = { "=aftercorr:" } },
  { name = "reservation", job = { reservation = "maint" }, faults = { "^%-%-reservation:" } },
  { name = "switches", job = { req_switch = 1 }, faults = { "^%-%-switches:" } },
  { name = "a switch for itself", job = { shared = 4 }, faults = { "^%-%-exclusive=topo:" } },
  { name = "reboot", job = { reboot = 1 }, faults = { "^%-%-reboot:" } },
  { name = "a comment of two lines", job = { comment = "a\njoined{0}" },
    faults = { "^%-%-comment: .*one line$" } },
  { name = "contiguous", job = { contiguous = 1 }, faults = { "^%-%-contiguous:" } },
  { name = "GPUs of the whole job", job = { min_nodes = 4, max_nodes = 4,
    tres_per_job = "gres:gpu:8" }, faults = { "^%-%-gpus=8: would be the GPUs of a single "
      .. "fragment, as %-%-malleable replaces the nodes; write %-%-gpus%-per%-node=2$" } },
  { name = "GPUs of two digits", job = { min_nodes = 2, max_nodes = 2,
    tres_per_job = "gres:gpu:16" }, faults = { "^%-%-gpus=16: .*%-per%-node=8$" } },
  { name = "GPUs of a kind", job = { min_nodes = 4, max_nodes = 4,
    tres_per_job = "gres/gpu:a100:8" }, faults = { "^%-%-gpus=a100:8: .*%-per%-node=a100:2$" } },
  { name = "GPUs that do not come out even", job = { min_nodes = 4, max_nodes = 4,
    tres_per_job = "gres:gpu:a:2,gres:gpu:b:8" }, faults = { "^%-%-gpus: .*%-per%-node=N$" } },
  { name = "GPUs of tasks on so many nodes", job = { num_tasks = 4, ntasks_per_node = 1,
    tres_per_job = "gres:gpu:8" }, faults = { "^%-%-gpus=8: .*%-per%-node=N$" } },
  { name = "tasks that no node has a whole number of", job = { min_nodes = 4, max_nodes = 4,
    num_tasks = 6 }, faults = { "^%-%-ntasks=6: .*%-%-nodes=4.*write %-%-ntasks%-per%-node=N" } },
  { name = "other partition", job = { partition = "main" },
    faults = { "^%-%-partition=main: .*malleable or scavenge; .*%-%-partition=malleable$" } },
  { name = "several other partitions", job = { partition = "main,long" },
    faults = { "^%-%-partition=main,long: .*malleable or scavenge; .*%-%-partition=malleable$" } },
  { name = "not preemptible", job = { partition = "scavenge" },
    faults = { "^%-%-partition=scavenge: .* there%. PartitionName=scavenge PriorityTier=1: " } },
  { name = "MIN above the partition", text = "8-16",
    site = { parts = { malleable = { max_time = INFINITE, total_nodes = 4 } } },
    faults = { "MIN 8 .* 4 nodes of partition malleable" } },
  { name = "time below the shortest hole", job = { time_limit = 1 },
    faults = { "^%-%-time: is 1 minute, as .*write %-%-time=2" } },
  { name = "time-min above time", job = { time_limit = 5, time_min = 8 },
    faults = { "^%-%-time%-min=8: .*write %-%-time%-min=5" } },
  { name = "time-min above the longest lease", job = { time_min = 20 },
    faults = { "^%-%-time%-min=20: .*600 seconds; write %-%-time%-min=10" } },
  { name = "partition limit below the hole", site = { parts = { malleable = { max_time = 1 } } },
    faults = { "^time: .*administrator" } },
  { name = "everything at once", text = "4-2,engine=foo", job = { array_inx = "1", requeue = 0,
    partition = "main", time_limit = 1 }, faults = { "MIN 4", "engine foo", "%-%-array",
    "%-%-no%-requeue", "%-%-partition", "%-%-time: is 1 minute" } },
}

for _, case in ipairs(UNSOUND) do
  local faults = submit(case).faults
  check(case.name .. " (count)", #faults == #case.faults, faults)
  for index, pattern in ipairs(case.faults) do
    local seen = faults[index] or ""
    check(case.name .. " (" .. pattern .. ")", seen:find(pattern) ~= nil, faults)
    check(case.name .. " (one line)", not seen:find("\n"), seen)
  end
end

-- Advice must itself be acceptable.
for _, case in ipairs(UNSOUND) do
  for _, fault in ipairs(submit(case).faults) do
    for advice in fault:gmatch("write (%-%-malleable=%S+)") do
      local text = advice:gsub("^%-%-malleable=", ""):gsub(",engine=foo", "")
      local faults = submit({ text = text, policy = case.policy }).faults
      check(case.name .. " (advice " .. advice .. ")", #faults == 0, faults)
    end
  end
end

-- Scripts: what is refused, what gets a note, and what passes without a word.
local COPIES = "^srun python train.py: each fragment would train a separate copy; write "
  .. "`torchrun %-%-nproc%-per%-node=N train.py` instead, or a MAX of 1$"
local TWICE = "^%-%-ntasks%-per%-node: srun starts torchrun twice on each node; write "
  .. "%-%-ntasks%-per%-node=1, "
local NOTE = "does not call torchrun"
local SINGLE = "^note: torchrun %-%-standalone: the job trains on all its nodes all the same; take "
  .. "the rank from RANK, not LOCAL_RANK, in the training script, or submit with a MAX of 1$"
local SCRIPTS = {
  { "srun python train.py", fault = COPIES },
  { "srun python3 -u train.py", fault = COPIES },
  { "srun /opt/py/bin/python3.11 train.py --epochs=3", fault = COPIES },
  { "srun --cpu-bind=none \\\n  python train.py \\\n  --x", fault = COPIES },
  { "A=1 exec srun -l python train.py", fault = COPIES },
  { "cd x && srun python train.py | tee log", fault = COPIES },
  { "if true; then srun python train.py; fi", fault = COPIES },
  { "source activate me\n. ~/conda.sh\nsrun python train.py", fault = COPIES },
  { "srun hostname\necho it\\'s\nsrun python train.py", fault = COPIES },
  { "python prepare.py\nsrun python train.py", fault = COPIES },
  { "srun bash -c 'cd x; python train.py'", fault = COPIES },
  { "srun python -m my.train", fault = "node=N %-m my%.train`" },
  { "srun python train.py", tasks = 8, fault = "`torchrun %-%-nproc%-per%-node=8 train%.py`" },
  { "srun python tr\27[2Jain.py", fault = "^srun python tr%?%[2Jain.py: " },
  { "srun python " .. ("x"):rep(500) .. ".py", fault = "x` instead" },
  { "srun python train.py", text = "1-1" },
  { "srun python train.py", text = "4-4,unit=4" },
  { "srun python train.py", text = "2-4,engine=tasks" },
  { "srun python train.py", text = "2-4,launch=srun", note = NOTE },
  { "python train.py", note = NOTE },
  { "srun hostname\n./run", note = NOTE },
  { "srun python train.py\n./finish.sh", note = NOTE },
  { "srun python prepare.py\ndeepspeed train.py", note = NOTE },
  { "srun python prepare.py\nmpirun -n 2 python train.py", note = NOTE },
  { "srun python train.py | tee log\necho done; wait", fault = COPIES },
  { "bash run.sh\nsrun python evaluate.py", note = NOTE },
  { "srun python prepare.py\npython train.py", note = NOTE },
  { "srun python -c 'import torch'", note = NOTE },
  { "srun python --version", note = NOTE },
  { "srun python -m pip install x", note = NOTE },
  { "srun $PYTHON train.py", note = NOTE },
  { "# srun python train.py\ntrue # srun python train.py", note = NOTE },
  { "cat <<EOF\nsrun python train.py\nEOF\n", note = NOTE },
  { "cat <<-'END'\n\tsrun python train.py\n\tEND\n", note = NOTE },
  { "echo 'now; srun python train.py'", note = NOTE },
  { 'echo "say \\"a; srun python train.py\\""', note = NOTE },
  { 'echo "\nsrun python train.py\n"', note = NOTE },
  { "true # don't\necho 'a; srun python train.py'", note = NOTE },
  { "echo srun python train.py", note = NOTE },
  { "srun python train.py\ntorchrun train.py" },
  { "cat >run.sh <<EOF\ntorchrun train.py\nEOF\nsrun python prepare.py\nsrun bash run.sh" },
  { "L='python -m torch.distributed.run'\nsrun $L train.py" },
  { "accelerate launch train.py" },
  { "torchrun train.py", tasks = 8 },
  { "srun torchrun train.py", tasks = 2, fault = TWICE },
  { "srun bash -c 'torchrun train.py'", tasks = 2, fault = TWICE },
  { "srun --kill-on-bad-exit python -m torch.distributed.run t.py", tasks = 2, fault = TWICE },
  { "srun ~/venv/bin/torchrun train.py", tasks = 3, fault = "starts torchrun 3 times on" },
  { "srun mkdir -p /tmp/cache/torchrun\ntorchrun train.py", tasks = 2 },
  { "srun pip install accelerate\ntorchrun train.py", tasks = 2 },
  { "srun --export=ALL,PATH=/opt/torchrun true\ntorchrun train.py", tasks = 2 },
  { "srun bash -c 'if [ $SLURM_LOCALID = 0 ]; then torchrun train.py; fi'", tasks = 2 },
  { "N=$((1 << SHIFT))\nsrun python prepare.py\nbash run.sh", note = NOTE },
  { "srun torchrun train.py", tasks = 1 },
  { "srun torchrun train.py" },
  { "srun torchrun train.py", tasks = 2, text = "2-4,engine=tasks" },
  { "srun --ntasks-per-node=1 torchrun train.py", tasks = 8 },
  { "srun -n1 torchrun train.py", tasks = 8 },
  { "srun which torchrun\ntorchrun train.py", tasks = 8 },
  { "srun ls /opt/torchrun/lib\ntorchrun train.py", tasks = 8 },
  { "echo srun torchrun; torchrun train.py", tasks = 8 },
  { "srun -N4 torchrun train.py", note = "^note: srun .N4 asks for more than the 1 node of a "
    .. "fragment; drop it, or write %-%-nodes=%$SLURM_NNODES$" },
  { "srun -l --nodes=4 -n4 torchrun train.py", note = "srun %-%-nodes=4 asks" },
  { "srun -N 4 torchrun train.py", note = "srun %-N 4 asks" },
  { "srun --nodes 4 hostname; torchrun train.py", note = "srun %-%-nodes 4 asks" },
  { "srun -N4 torchrun train.py", text = "4-8,unit=4,launch=srun" },
  { "srun -N8 torchrun train.py", text = "4-8,unit=4", note = "the 4 nodes of a fragment" },
  { "srun -N1 hostname; srun --nodes=$SLURM_NNODES torchrun train.py" },
  { "srun tool -N4; torchrun train.py" },
  { "torchrun --standalone --nproc-per-node=4 train.py", note = SINGLE },
  { "srun python -m torch.distributed.run --standalone train.py", note = SINGLE },
  { "torchrun --nnodes=1 -m train", note = "torchrun %-%-nnodes=1: " },
  { "torchrun --nnodes 1:1 train.py", note = "torchrun %-%-nnodes 1:1: " },
  { "torchrun --standalone train.py", text = "1-1" },
  { "torchrun --nnodes=1:4 train.py" },
  { "torchrun --nnodes=$SLURM_NNODES train.py" },
  { "torchrun train.py --standalone" },
  { "torchrun -m train --nnodes=1" },
  { "import os\nos.system('srun python train.py')", first = "#!/usr/bin/env python3" },
  { "srun python train.py", first = "" },
}

for _, case in ipairs(SCRIPTS) do
  local script = (case.first or "#!/bin/bash -l") .. "\n#SBATCH --nodes=4\n" .. case[1] .. "\n"
  local decision = submit({ text = case.text or "2-4",
    job = { script = script, ntasks_per_node = case.tasks } })
  local name = "script " .. case[1]:sub(1, 60)
  local seen = table.concat(decision.faults, "\n")
  check(name .. " (fault)", seen:find(case.fault or "^$") ~= nil, seen)
  check(name .. " (short)", #seen < 400, seen)
  local said = table.concat(decision.notes, "\n")
  check(name .. " (note)", said:find(case.note or "^$") ~= nil, said)
end
-- Lines of #SBATCH that ask for a signal: the job of a trap would come once for each fragment.
local SIGNALS = {
  { "#SBATCH --signal=B:USR1@120", fault = "^%-%-signal=B:USR1@120: " },
  { "#SBATCH --signal=SIGUSR1@90", fault = "delete the line and its trap" },
  { "#SBATCH --signal B:USR1@120", fault = "^%-%-signal: " },
  { "#SBATCH --nodes=2 --signal=USR1  # soon", fault = "^%-%-signal=USR1: " },
  { "#SBATCH\t--sig=USR1", fault = "^%-%-sig=USR1: " },
  { "# a comment\n\n#SBATCH --signal=USR1", fault = "^%-%-signal=USR1: " },
  { "#SBATCH --signal=" .. ("U"):rep(500), fault = "^%-%-signal=U+: " },
  { "#SBATCH --signal=USR1", first = "#!/usr/bin/env python3", fault = "^%-%-signal" },
  { "#SBATCH --signal=USR1", text = "0-4,engine=tasks", fault = "^%-%-signal" },
  { "##SBATCH --signal=USR1" },
  { "# SBATCH --signal=USR1" },
  { "#SBATCH --mem=0 # not --signal=USR1" },
  { "#SBATCH --comment=--signal=USR1" },
  { "true\n#SBATCH --signal=USR1" }, -- sbatch stops at the first command
}
for _, case in ipairs(SIGNALS) do
  local script = (case.first or "#!/bin/bash") .. "\n" .. case[1] .. "\ntorchrun train.py\n"
  local seen = table.concat(submit({ text = case.text or "2-4",
    job = { script = script } }).faults, "\n")
  check("signal " .. case[1]:sub(1, 60), seen:find(case.fault or "^$") ~= nil, seen)
  check("signal " .. case[1]:sub(1, 60) .. " (short)", #seen < 400, seen)
end

check("signal and separate copies", #submit({ job = {
  script = "#!/bin/bash\n#SBATCH --signal=USR1\nsrun python train.py\n" } }).faults == 2)

-- A trap that submits the job again does so in each fragment.
local TRAPS = {
  { "trap 'sbatch --malleable=1-4 $0' USR1\nsrun torchrun t.py &\nwait", call = "sbatch" },
  { "again() {\n  /usr/bin/sbatch $0\n}\ntrap again TERM\ntorchrun t.py", call = "sbatch" },
  { 'trap "scontrol requeue $SLURM_JOB_ID" USR1\ntorchrun t.py', call = "scontrol requeue" },
  { "trap again EXIT\nagain() { scontrol requeue $SLURM_JOB_ID; }", call = "scontrol requeue" },
  { "trap 'sbatch $0' USR1\nmpirun x", text = "2-4,engine=tasks", call = "sbatch" },
  { "trap 'rm -rf $TMP' EXIT\ntorchrun t.py" },
  { "trap 'scontrol show job' EXIT\ntorchrun t.py" },
  { "torchrun t.py && sbatch next.sh" },
  { "trap : TERM\n# sbatch next.sh\necho sbatch\ntorchrun t.py" },
}
for _, case in ipairs(TRAPS) do
  local decision = submit({ text = case.text or "2-4",
    job = { script = "#!/bin/bash\n" .. case[1] .. "\n" } })
  local said = table.concat(decision.notes, "\n")
  local line = case.call and "^note: the script has a trap and calls " .. case.call .. ": each "
  check("trap " .. case[1]:sub(1, 60), #decision.faults == 0 and said:find(line or "^$") ~= nil,
    said)
end

check("no launchers: a policy of an older version", #submit({ policy = { launchers = ABSENT },
  job = { script = "#!/bin/sh\nsrun python train.py\n" } }).faults == 0)

-- The controller waits while a script is read: no text may take long.
for _, text in ipairs({ " ", "'", "\\", "<<", "<< ", "a/", "#", "a", "$(", "srun python ", ";",
  "\n", "<<E\n", "A=", " #", '\\"' }) do
  local began = os.clock()
  submit({ job = { script = "#!/bin/sh\n" .. text:rep(math.floor(65000 / #text)) } })
  check("quick with " .. text, os.clock() - began < 1, os.clock() - began)
end

-- Policies: number of faults.
local POLICIES = {
  { name = "sound", faults = 0 },
  { name = "no partition", change = { partitions = {} }, faults = 1 },
  { name = "text for a number", change = { lease_s = "600" }, faults = 1 },
  { name = "no notice: a file of an older version", change = { notice_s = false }, faults = 1 },
  { name = "a QOS", change = merge(LIMITED, { qos = "scavenge" }), faults = 0 },
  { name = "an account", change = { account = "spare" }, faults = 0 },
  { name = "a partition for parts of nodes", change = { part_nodes = "parts" }, faults = 0 },
  { name = "no partition by that name", change = { part_nodes = "" }, faults = 1 },
  { name = "no account by that name", change = { account = "" }, faults = 1 },
  { name = "no QOS by that name", change = { qos = "", submit_limits = "9" }, faults = 2 },
  { name = "zero", change = { max_nodes = 0, hole_s = 0.5 }, faults = 2 },
  { name = "engines without traits: a file of an older version", faults = 4,
    change = { engines = { a = true, b = "", c = "gang+daemon", d = "gang+rounds",
      e = "gang+gang" } } },
  { name = "foreign engines that are none", change = { foreign = "horovod" }, faults = 1 },
  { name = "GPUs without kinds", change = { gpus = { malleable = 8 } }, faults = 1 },
  { name = "GPUs as texts", change = { gpus = { malleable = { gpu = { "8" } } } }, faults = 1 },
  { name = "GPUs", change = { gpus = { malleable = { gpu = { 4, 8 } } } }, faults = 0 },
  { name = "no workers", change = { max_workers = 0 }, faults = 1 },
  { name = "no tables", change = { engines = 1, operators = "root", unfit = false },
    faults = 3 },
}

for _, case in ipairs(POLICIES) do
  local faults = request_module.check_policy(merge(POLICY, case.change))
  check("policy " .. case.name, #faults == case.faults, faults)
end
check("policy nil", #request_module.check_policy(nil) == 1)

-- Changes by the owner. Unset fields are those of a 22.05 `scontrol update`.
local UNSET = {
  priority = NO_VAL, nice = NO_VAL, begin_time = 0, end_time = 0, time_limit = NO_VAL,
  time_min = NO_VAL, requeue = NO_VAL16, contiguous = NO_VAL16, req_switch = NO_VAL,
  min_nodes = NO_VAL, max_nodes = NO_VAL, num_tasks = NO_VAL, min_cpus = NO_VAL,
  max_cpus = NO_VAL, cpus_per_task = NO_VAL16, ntasks_per_node = NO_VAL16,
  sockets_per_node = NO_VAL16, cores_per_socket = NO_VAL16, threads_per_core = NO_VAL16,
  pn_min_cpus = NO_VAL16, pn_min_memory = 18446744073709551616.0, pn_min_tmp_disk = NO_VAL,
  shared = NO_VAL16, reboot = NO_VAL16,
}
local HELD, DENIED = modify_module.JOB_HELD, modify_module.ACCESS_DENIED
local CHANGES = {
  { name = "nothing or a comment", code = nil },
  { name = "hold", change = { priority = 0 }, code = nil },
  { name = "release", change = { priority = INFINITE }, code = HELD, text = "released" },
  { name = "priority", change = { priority = 65534 }, code = HELD, text = "Priority" },
  { name = "nice", change = { nice = 2147483653 }, code = DENIED, text = "Nice" },
  { name = "time limit", change = { time_limit = 5 }, code = DENIED, text = "another %-%-time" },
  { name = "throttle", change = { array_inx = "1" }, code = DENIED, text = "Throttle" },
  { name = "node list", change = { req_nodes = "n1" }, code = DENIED, text = "ReqNodeList" },
  { name = "start", change = { begin_time = 1795187648 }, code = DENIED, text = "StartTime" },
  { name = "memory", change = { pn_min_memory = 100 }, code = DENIED, text = "MinMemory" },
  { name = "memory per CPU", change = { pn_min_memory = 9223372036854775808.0 }, code = DENIED,
    text = "MinMemory" },
  { name = "nodes", change = { min_nodes = 65534 }, code = DENIED, text = "NumNodes" },
  { name = "threads", change = { threads_per_core = 1 }, code = DENIED, text = "ReqThreads" },
  { name = "GPUs", change = { tres_per_node = "gres:gpu:8" }, code = DENIED, text = "Gres" },
  { name = "requeue off", change = { requeue = 0 }, code = DENIED, text = "Requeue" },
  { name = "two at once", change = { partition = "main", qos = "high" }, code = DENIED,
    text = "Partition.*\n.*QOS" },
  { name = "account", change = { account = "lab" }, code = nil },
  { name = "account where malleable jobs have one", change = { account = "lab" }, code = DENIED,
    policy = { account = "spare" }, text = "Account" },
  { name = "a comment of one line", change = { comment = "progress{1};mine" }, code = nil },
  { name = "a comment of two lines", change = { comment = "a\n7_0|RUNNING" }, code = DENIED,
    text = "Comment.*control characters" },
  { name = "a Slurm without these fields", base = {}, code = nil },
}

for _, case in ipairs(CHANGES) do
  local code, lines = modify_module.judge(merge(case.base or UNSET, case.change), case.policy)
  check("change: " .. case.name, code == case.code, code)
  local text = table.concat(lines, "\n")
  check("change: " .. case.name .. " (text)", text:find(case.text or "^$") ~= nil, text)
end

check("root may", modify_module.is_operator(0, 1000, POLICY))
check("a listed operator may", modify_module.is_operator(64030, 1000, POLICY))
check("the owner may not", not modify_module.is_operator(1000, 1000, POLICY))
check("no policy: the owner may not", not modify_module.is_operator(1000, 1000, nil))
check("no policy: root may", modify_module.is_operator(0, 0, nil))
check("no policy: others may", modify_module.is_operator(64030, 1000, nil))
check("mark", modify_module.is_marked("x;malleable{min=1}"))
for text, wanted in pairs({ ["ticket 7"] = "malleable{min=1} ticket 7", [""] = "malleable{min=1}",
  ["+=more"] = false, ["x malleable{min=2}"] = false }) do
  local kept = modify_module.keep_mark("old;malleable{min=1} words", text)
  check("the mark beside " .. text, (kept or false) == wanted, kept)
end
for old, wanted in pairs({ ["trained{3};h{600}r;progress{1}"] = "trained{3};h{600}r;mine",
  ["started{0}"] = "started{0};mine", ["epoch{3}"] = false,
  ["own words"] = false, [""] = false }) do
  local kept = modify_module.keep_words(old, "mine")
  check("the words of an agent: " .. old, (kept or false) == wanted, kept)
end
check("an agent's own words", modify_module.keep_words("started{0}", "joined{0}") == nil)
check("no mark", not modify_module.is_marked("malleable") and not modify_module.is_marked(nil))

print(string.format("%d checks, %d failed", ran, failed))
os.exit(failed == 0 and 0 or 1)
