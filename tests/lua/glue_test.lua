-- The glue against a small stand-in for Slurm. Run as:
--   lua glue_test.lua DIRECTORY_OF_MODULES SCRATCH_DIRECTORY
-- The scratch directory holds policy_good.lua, policy_bad.lua and site.lua, which reads the glue
-- the way a site's job_submit.lua does; malleable_policy.lua beside site.lua.

local modules, scratch = arg[1], arg[2]
local NO_VAL = 4294967294
local ran, failed = 0, 0
local said, logged

local function check(name, ok, seen)
  ran = ran + 1
  if ok then return end
  failed = failed + 1
  print("FAILED " .. name .. ": saw " .. tostring(seen))
end

--- Load the glue anew into fresh globals, as slurmctld does when the script changes.
local function load_glue(policy, site)
  said, logged = {}, {}
  slurm = {
    SUCCESS = 0, ERROR = -1,
    log_user = function(form, ...) said[#said + 1] = string.format(form, ...) end,
    log_error = function(form, ...) logged[#logged + 1] = string.format(form, ...) end,
  }
  site = site or {}
  slurm_job_submit, slurm_job_modify = site.submit, site.modify
  MALLEABLE_POLICY = policy and scratch .. "/" .. policy
  MALLEABLE_WRAPPED = nil
  MALLEABLE_GLUE = modules .. "/malleable_submit.lua"
  dofile(scratch .. "/site.lua")
end

--- A job_desc that remembers what was written.
local function describe_job(fields)
  local job = {
    script = "#!/bin/sh\n", environment = {},
    min_nodes = NO_VAL, max_nodes = NO_VAL, priority = NO_VAL,
    requeue = 65534, time_limit = NO_VAL, time_min = NO_VAL, het_job_offset = NO_VAL,
    mail_type = 0, num_tasks = NO_VAL, begin_time = 0, contiguous = 0,
    spank_job_env = { [0] = "_SLURM_SPANK_OPTION_malleable_malleable=2-4",
      [1] = "MALLEABLE=2-4,unit=1,engine=torchrun" },
  }
  for key, value in pairs(fields or {}) do
    job[key] = value
  end
  return job
end

local function heard(pattern)
  return table.concat(said, "\n"):find(pattern) ~= nil
end

local PLAIN = { spank_job_env = false }
local MARK = "malleable{min=2,max=4,unit=1,engine=torchrun,frags=4,lease=600,hole=120,not=-}"

load_glue("policy_good.lua")
local job = describe_job()
check("no site functions: accepted", slurm_job_submit(job, {}, 1000) == 0, said[1])
check("array", job.array_inx == "0-3", job.array_inx)
check("mark", job.admin_comment == MARK, job.admin_comment)
job = describe_job({ name = "train.sh" })
check("with a name", slurm_job_submit(job, {}, 1000) == 0, said[1])
check("which is in the mark", job.admin_comment == MARK:gsub(",not", ",name=train.sh,not"),
  job.admin_comment)
job = describe_job({ exc_nodes = "n[1,3]" })
check("with nodes excluded", slurm_job_submit(job, {}, 1000) == 0, said[1])
check("which are in the mark", job.admin_comment == MARK:gsub("not=%-", "not=n(1+3)"),
  job.admin_comment)
job = describe_job()
slurm_job_submit(job, {}, 1000)
check("held", job.priority == 0, job.priority)
check("notice", job.environment.SLURM_SPANK_MALLEABLE_NOTICE_S == "35")
check("farewell", job.environment.SLURM_SPANK_MALLEABLE_FAREWELL_S == "1.5")
check("the request for the node",
  job.environment.SLURM_SPANK_MALLEABLE == "2-4,unit=1,engine=torchrun")

job = describe_job({ spank_job_env = false,
  environment = { SBATCH_MALLEABLE = "1-3,launch=srun" } })
check("by the environment alone", slurm_job_submit(job, {}, 1000) == 0, said[1])
check("an array too", job.array_inx == "0-2", job.array_inx)
check("and the user is told why", heard("the environment has SBATCH_MALLEABLE=1%-3,launch=srun"),
  said[1])
check("and the node is told", job.environment.SLURM_SPANK_MALLEABLE
  == "1-3,unit=1,engine=torchrun,launch=srun")
job = describe_job({ environment = { SBATCH_MALLEABLE = "1-3" } })
said = {}
check("the option wins", slurm_job_submit(job, {}, 1000) == 0 and job.array_inx == "0-3")
check("and nothing is said of the variable", not heard("in the environment"), said[1])
job = describe_job({ spank_job_env = false, environment = { SBATCH_MALLEABLE = "" } })
check("an empty variable is none", slurm_job_submit(job, {}, 1000) == 0 and not job.array_inx)
job = describe_job({ spank_job_env = false, environment = { SBATCH_MALLEABLE = "yes" } })
check("a wrong one refuses", slurm_job_submit(job, {}, 1000) == -1)
check("and says whose it is", heard("environment variable SBATCH_MALLEABLE is set"), said[2])
job = describe_job({ spank_job_env = false, environment = { SBATCH_MALLEABLE = "1-3" } })
job.script = nil
check("salloc and srun do not care", slurm_job_submit(job, {}, 1000) == 0 and not job.array_inx)

job, said = describe_job({ spank_job_env = false, environment = { MALLEABLE = "2-4" } }), {}
check("a variable of others makes no difference",
  slurm_job_submit(job, {}, 1000) == 0 and not job.array_inx and not said[1], said[1])

job = describe_job(PLAIN)
check("a job of somebody else passes", slurm_job_submit(job, {}, 1000) == 0)
check("and is untouched", job.array_inx == nil and job.priority == NO_VAL
  and next(job.environment) == nil)

job = describe_job({ spank_job_env = { [0] = "OTHER=1", [3] = "XMALLEABLE=1-2" } })
check("another plugin's environment passes", slurm_job_submit(job, {}, 1000) == 0)
check("untouched too", job.array_inx == nil)

job = describe_job()
job.script = nil
check("no script: salloc inside a malleable job", slurm_job_submit(job, {}, 1000) == 0)
check("stays what it is", job.array_inx == nil)

check("a fault refuses", slurm_job_submit(describe_job({ array_inx = "1-3" }), {}, 1000) == -1)
check("and says why", heard("%-%-array"), said[1])

-- Texts of users: slurmctld waits while they are read.
local LONGEST, MOST_S = 65536, 1
local FILLERS = { "9", "a", ";", ":", "-", "=", " ", "%", ",", "gpu:", "gres:gpu:1", "malleable{",
  "malleable{}", "singleton", "#SBATCH --open-mode ", "<<", "\"", "((", "srun ", "/", "%1" }
local TEXTS = { "dependency", "tres_per_job", "tres_per_node", "tres_per_task", "std_out",
  "comment", "licenses", "name", "exc_nodes", "admin_comment", "partition", "qos", "account" }

--- A job with a text in one field, the code, and the processor's seconds that this took.
local function submit_with(field, text, request)
  said = {}
  local desc = describe_job({ [field] = text, min_nodes = 2, max_nodes = 2,
    spank_job_env = request })
  local before = os.clock()
  local code = slurm_job_submit(desc, {}, 1000)
  return desc, code, os.clock() - before
end

local function check_pace(field, request)
  for _, filler in ipairs(FILLERS) do
    local text = filler:rep(LONGEST):sub(1, LONGEST - 20)
    for _, form in ipairs({ "%s", "gres:gpu:%sx", "#!/bin/sh\n%sx", "%sx\n" }) do
      local _, _, took_s = submit_with(field, (form:gsub("%%s", function() return text end)),
        request)
      check(field .. " full of " .. filler, took_s < MOST_S, took_s)
    end
  end
end

load_glue("policy_launchers.lua")
check_pace("script")
for _, field in ipairs(TEXTS) do
  check_pace(field)
  local _, code = submit_with(field, ("x"):rep(LONGEST + 1))
  check(field .. " too long: refused", code == -1, code)
  check(field .. " too long: why", #said == 1 and heard(field .. " is longer than 65536 bytes"),
    said[1])
end
load_glue("policy_parts.lua")
for _, field in ipairs({ "script", "tres_per_node", "tres_per_job", "tres_per_task",
  "tres_per_socket", "cpus_per_tres", "mem_per_tres" }) do
  check_pace(field, { [0] = "MALLEABLE=2-4,unit=gpu" })
end
load_glue("policy_launchers.lua")
local long = "#!/bin/sh\nsrun python train.py\n#"
job = submit_with("script", long .. ("x"):rep(LONGEST - #long))
check("a script that can be read", job.array_inx == nil and heard("would train a separate copy"))
job = submit_with("script", long .. ("x"):rep(LONGEST + 1 - #long))
check("a longer script is not read", job.array_inx == "0-3", said[1])
job = describe_job({ spank_job_env = false, dependency = ("x"):rep(LONGEST + 1) })
check("an ordinary job passes", slurm_job_submit(job, {}, 1000) == 0 and not job.array_inx)
local own = { admin_comment = MARK, user_id = 1000 }
local change = { comment = ("x"):rep(LONGEST) }
check("a comment that can be read", slurm_job_modify(change, own, {}, 1000) == 0, said[1])
change, said = { comment = ("x"):rep(LONGEST + 1) }, {}
check("a longer comment", slurm_job_modify(change, own, {}, 1000) == 2002)
check("and its user is told", heard("comment is longer than 65536 bytes"), said[1])
check("an operator may", slurm_job_modify(change, own, {}, 0) == 0)

-- Texts that people write. An update of an array calls for each element, with what the last call
-- wrote.
local function comment_on(elements, text, uid)
  local update = { comment = text, admin_comment = text }
  for task, comment in ipairs(elements) do
    local mark = comment ~= "unmarked" and MARK or nil
    local element = { admin_comment = mark, user_id = 1000, comment = comment,
      array_job_id = 7, array_task_id = task }
    check("a text on an element", slurm_job_modify(update, element, {}, uid) == 0, said[1])
    elements[task] = { update.comment, update.admin_comment }
  end
  return elements
end
for _, uid in ipairs({ 0, 1000, 500 }) do -- 500: one of Slurm's Administrators
  local before = { "finished{0}", "", "joined{2}", "unmarked", "epoch{1}" }
  local after = { "finished{0};ticket", "ticket", "joined{2};ticket", "ticket", "ticket" }
  for task, now in ipairs(comment_on(before, "ticket", uid)) do
    check("a comment on element " .. task, now[1] == after[task], now[1])
    local whole = task == 4 and "ticket" or MARK .. " ticket"
    check("an AdminComment on element " .. task, now[2] == whole, now[2])
  end
end
local latest = comment_on({ "joined{0}" }, "ticket", 1000)[1][1]
check("an agent that writes the same text later",
  comment_on({ "started{0};ticket" }, latest, 1000)[1][1] == latest)

-- Parts of nodes.
load_glue("policy_parts.lua")
job = describe_job({ spank_job_env = { [0] = "MALLEABLE=2-8,unit=2gpu" }, tres_per_node =
  "gres/gpu:a100:8", mem_per_tres = "gres/gpu:1000", min_mem_per_node = 0, shared = 1 })
check("a job of GPUs", slurm_job_submit(job, { parts = { total_nodes = 3 } }, 1000) == 0, said[1])
check("its partition", job.partition == "parts", job.partition)
check("an element waits with the unit", job.tres_per_node == "gres/gpu:a100:2"
  and job.mem_per_tres == "" and job.pn_min_memory == 2000, job.tres_per_node)
check("it is for one node, which it shares", job.min_nodes == 1 and job.max_nodes == 1
  and job.shared == 65534, job.shared)
check("the slot is in the mark", job.admin_comment == "malleable{min=2,max=8,unit=2,"
  .. "engine=torchrun,frags=3,lease=600,hole=120,not=-,slot=gpu:a100+mem:1000}", job.admin_comment)
check("and the unit in the request", job.environment.SLURM_SPANK_MALLEABLE
  == "2-8,unit=2gpu,engine=torchrun")
job = describe_job({ spank_job_env = { [0] = "MALLEABLE=2-8,unit=gpu,core=2" }, partition = "gpu",
  tres_per_node = "gres/gpu:1", cpus_per_tres = "gres/gpu:1", mem_per_tres = "gres/gpu:1000" })
check("a core of GPUs", slurm_job_submit(job, { gpu = { total_nodes = 1 },
  parts = { total_nodes = 3 } }, 1000) == 0, said[1])
check("beside it a GPU of each node of the lane", job.array_inx == "0-4", job.array_inx)
job = describe_job({ shared = 1 })
check("whole nodes as ever", slurm_job_submit(job, {}, 1000) == 0 and job.shared == 0
  and job.admin_comment == MARK and job.tres_per_node == nil and job.pn_min_memory == nil)

-- A job of whole nodes that leaves GPUs idle: the line that its note advises is accepted.
local HAS_LINE, HAS_OTHER = "gets whole nodes of 8 GPUs; write %-%-malleable=",
  "gets whole nodes of 8 GPUs; ask for all 8 GPUs of a node instead, and use them in the script$"
local ADVISED = {
  { name = "a GPU of each node", job = { tres_per_node = "gres/gpu:1" }, note = HAS_LINE },
  { name = "a GPU of each task", note = HAS_LINE, job = { tres_per_task = "gres/gpu:1",
    ntasks_per_node = 2 } },
  { name = "CPUs of each GPU", note = HAS_LINE, job = { tres_per_node = "gres/gpu:2",
    cpus_per_tres = "gres/gpu:3", mem_per_tres = "gres/gpu:1000" } },
  { name = "CPUs of each task", note = HAS_LINE, job = { tres_per_node = "gres/gpu:1",
    cpus_per_task = 3 } },
  { name = "2 GPUs of each of 2 tasks", note = HAS_OTHER, job = { tres_per_task = "gres/gpu:2",
    ntasks_per_node = 2 } },
  { name = "GPUs of a socket", note = HAS_OTHER, job = { tres_per_node = "gres/gpu:1",
    tres_per_socket = "gres/gpu:1" } },
  { name = "tasks of a GPU", note = HAS_OTHER, job = { tres_per_node = "gres/gpu:1",
    ntasks_per_tres = 1 } },
  { name = "sockets", note = HAS_OTHER, job = { tres_per_node = "gres/gpu:1",
    sockets_per_node = 2 } },
  { name = "memory of a node beside --gpus", note = HAS_OTHER, job = { tres_per_job = "gres/gpu:1",
    min_mem_per_node = 4000 } },
  { name = "CPUs that 4 GPUs cannot share", note = HAS_OTHER, job = { tres_per_node = "gres/gpu:4",
    cpus_per_task = 3 } },
  { name = "memory of a CPU", note = HAS_OTHER, job = { tres_per_node = "gres/gpu:4",
    min_mem_per_cpu = 100 } },
  { name = "workers in the script", note = HAS_OTHER, job = { tres_per_node = "gres/gpu:1",
    script = "#!/bin/sh\ntorchrun --nproc-per-node=2 train.py\n" } },
  { name = "engine=torchft", request = ",engine=torchft", note = HAS_OTHER, job = {
    tres_per_node = "gres/gpu:1" } },
  { name = "--exclusive", job = { tres_per_node = "gres/gpu:1", shared = 0 } },
  { name = "all GPUs", job = { tres_per_node = "gres/gpu:8" } },
}

--- Submit a request to partitions of 4 nodes. Returns the code.
local function submit_gpus(fields, request)
  local desc = describe_job(fields)
  desc.spank_job_env = { [0] = "MALLEABLE=" .. request }
  said = {}
  return slurm_job_submit(desc, { malleable = { total_nodes = 4 }, parts = { total_nodes = 4 } },
    1000)
end

load_glue("policy_gpus.lua")
for _, case in ipairs(ADVISED) do
  local code = submit_gpus(case.job, "2-4" .. (case.request or ""))
  local note = table.concat(said, "\n")
  check(case.name .. ": accepted", code == 0, note)
  check(case.name .. ": note", (note:find(case.note or "whole nodes") ~= nil)
    == (case.note ~= nil), note)
  local line = note:match("write %-%-malleable=(%S+)")
  check(case.name .. ": the line is accepted too", not line or submit_gpus(case.job, line) == 0,
    tostring(line) .. ": " .. tostring(said[1]))
end

-- Without MALLEABLE_POLICY the policy lies beside the file that reads the glue.
load_glue(nil)
check("policy beside the site's file", slurm_job_submit(describe_job(), {}, 1000) == 0, said[1])

-- The site's own functions.
local seen
load_glue("policy_good.lua", {
  submit = function(desc)
    seen = desc.admin_comment
    desc.partition, desc.admin_comment = "main", "site"
    return desc.comment == "no" and slurm.ERROR or slurm.SUCCESS
  end,
  modify = function(desc) return desc.comment == "no" and 2000 or 0 end,
})
job = describe_job()
check("site runs first", slurm_job_submit(job, {}, 1000) == 0 and seen == nil, seen)
check("site's comment is kept", job.admin_comment == "site;" .. MARK, job.admin_comment)
check("site's default partition gives way", job.partition == "malleable", job.partition)
job = describe_job({ comment = "no" })
check("site's refusal stands", slurm_job_submit(job, {}, 1000) == -1 and job.array_inx == nil)
local held = { admin_comment = MARK, user_id = 1000 }
check("site's refusal of a change stands",
  slurm_job_modify({ comment = "no" }, held, {}, 0) == 2000)
check("released by its user", slurm_job_modify({ priority = 4294967295 }, held, {}, 1000) == 2042)
check("and he is told", heard("hold cannot be changed"), said[1])
check("released by an operator", slurm_job_modify({ priority = 4294967295 }, held, {}, 0) == 0)
check("held by its user", slurm_job_modify({ priority = 0 }, held, {}, 1000) == 0)
check("time limit", slurm_job_modify({ time_limit = 5 }, held, {}, 1000) == 2002)
check("somebody else's job", slurm_job_modify({ time_limit = 5 }, { user_id = 1 }, {}, 1) == 0)

-- Read twice: wrapped once.
local calls = 0
load_glue("policy_good.lua", { submit = function() calls = calls + 1; return 0 end })
dofile(scratch .. "/site.lua")
slurm_job_submit(describe_job(PLAIN), {}, 1000)
check("wrapped once", calls == 1, calls)

-- A broken or missing policy.
for _, name in ipairs({ "policy_bad.lua", "policy_syntax.lua", "policy_missing.lua" }) do
  load_glue(name)
  check(name .. ": logged", #logged == 1, #logged)
  check(name .. ": other jobs pass", slurm_job_submit(describe_job(PLAIN), {}, 1000) == 0)
  check(name .. ": ours are refused", slurm_job_submit(describe_job(), {}, 1000) == -1)
  check(name .. ": with a reason", heard("malleable jobs are off here.*" .. name), said[1])
  local release = { priority = 4294967295 }
  check(name .. ": the owner cannot release", slurm_job_modify(release, held, {}, 1000) == 2042)
  check(name .. ": an operator can", slurm_job_modify(release, held, {}, 64030) == 0)
end

-- A policy that is written after this was read, in the same second: no `touch` tells Slurm of it.
local function copy(from, to)
  local source, target = io.open(scratch .. "/" .. from), io.open(scratch .. "/" .. to, "w")
  target:write(source:read("*a"))
  source:close()
  target:close()
end

load_glue("policy_late.lua")
check("no policy yet: ours are refused", slurm_job_submit(describe_job(), {}, 1000) == -1)
copy("policy_good.lua", "policy_late.lua")
check("a late policy is found", slurm_job_submit(describe_job(), {}, 1000) == 0, said[1])

-- A module that is missing.
load_glue("policy_good.lua")
MALLEABLE_WRAPPED = nil
MALLEABLE_GLUE = scratch .. "/lonely/malleable_submit.lua"
slurm_job_submit, slurm_job_modify = nil, nil
dofile(scratch .. "/site.lua")
check("no modules: other jobs pass", slurm_job_submit(describe_job(PLAIN), {}, 1000) == 0)
check("no modules: ours are refused", slurm_job_submit(describe_job(), {}, 1000) == -1)
check("no modules: changes pass", slurm_job_modify({}, held, {}, 1000) == 0)

-- An error inside: a job_desc that cannot be read or written.
load_glue("policy_good.lua")
local unreadable = setmetatable({}, { __index = function() error("no such field") end })
check("an unreadable job passes", slurm_job_submit(unreadable, {}, 1000) == 0)
check("an unreadable record passes", slurm_job_modify({}, unreadable, {}, 1000) == 0)
job = setmetatable({}, { __index = describe_job(), __newindex = function() error("read-only") end })
check("a fault while writing refuses", slurm_job_submit(job, {}, 1000) == -1)
check("with a message", heard("to your administrator.*read%-only"), said[1])

print(string.format("%d checks, %d failed", ran, failed))
os.exit(failed == 0 and 0 or 1)
