--- What slurmctld asks job_submit, from standard input: a line each of a kind and a text in
-- hexadecimal bytes. The text of a `submission` and of a `change` is fields of a job, `name=value`,
-- with byte 31 between them; that of a `policy` is the file.
--
-- usage: lua controller.lua MODULES POLICY; one line for each: `taken`, with what was written in
-- hexadecimal bytes, `refused`, or `broken`, with why.

local modules, policy = arg[1], arg[2]
local NO_VAL, NO_VAL16 = 4294967294, 65534
local NUMBERS = {
  min_nodes = NO_VAL, max_nodes = NO_VAL, num_tasks = NO_VAL, time_limit = NO_VAL,
  time_min = NO_VAL, priority = NO_VAL, req_switch = NO_VAL, het_job_offset = NO_VAL,
  requeue = NO_VAL16, ntasks_per_node = NO_VAL16, shared = NO_VAL16, reboot = NO_VAL16,
  mail_type = 0, begin_time = 0, contiguous = 0, bitflags = 0, nice = NO_VAL, end_time = 0,
  min_cpus = NO_VAL, pn_min_memory = 2 ^ 64 - 2, cpus_per_task = NO_VAL16, pn_min_cpus = NO_VAL16,
  ntasks_per_tres = NO_VAL16, threads_per_core = NO_VAL16, sockets_per_node = NO_VAL16,
  cores_per_socket = NO_VAL16,
}
-- Numbers of which Slurm gives Lua nothing while they are unset.
local GIVEN = { min_mem_per_node = true, min_mem_per_cpu = true, core_spec = true }
local CHANGED = { contiguous = NO_VAL16 } -- where a change that leaves it alone has another value
local WRITTEN = { "admin_comment", "array_inx", "partition", "min_nodes", "priority",
  "tres_per_node", "cpus_per_task", "pn_min_memory" }
local LONGEST = 1000 -- of a line that a user is told
local logged, said

slurm = {
  SUCCESS = 0, ERROR = -1, EXPEDITED_REQUEUE = 2 ^ 40,
  log_user = function(form, ...) said[#said + 1] = string.format(form, ...) end,
  log_error = function(form, ...) logged[#logged + 1] = string.format(form, ...) end,
}
MALLEABLE_POLICY = policy
logged, said = {}, {}
dofile(modules .. "/malleable_submit.lua")
assert(#logged == 0, logged[1])
local request = dofile(modules .. "/malleable_request.lua")

local function hex(text)
  return (text:gsub(".", function(byte) return string.format("%02x", byte:byte()) end))
end

local function unhex(text)
  return (text:gsub("..", function(byte) return string.char(tonumber(byte, 16)) end))
end

--- A number as Slurm's C would hold it.
local function number(text, unset)
  local found = tonumber(text)
  local is_held = found and found % 1 == 0 and found >= 0 and found <= 4294967295
  return is_held and found or unset
end

local function describe(text, unset)
  local job = { environment = {} }
  for name, value in pairs(NUMBERS) do
    job[name] = unset[name] or value
  end
  for name, value in text:gmatch("([a-z_]+)=([^\31]*)") do
    if name == "malleable" then
      job.spank_job_env = { [0] = "MALLEABLE=" .. value }
    elseif name == "variable" then
      job.environment.SBATCH_MALLEABLE = value
    elseif NUMBERS[name] then
      job[name] = number(value, job[name])
    elseif GIVEN[name] then
      job[name] = number(value, nil)
    else
      job[name] = value
    end
  end
  return job
end

local function answer(code, words)
  for _, line in ipairs(said) do
    if #line > LONGEST then return "broken " .. hex("a long line: " .. line:sub(1, 200)) end
  end
  if #logged > 0 then return "broken " .. hex(logged[1]) end
  if code ~= slurm.SUCCESS then return "refused" end
  return "taken " .. hex(table.concat(words, "\31"))
end

local ASK = {}

function ASK.submission(text)
  local job = describe(text, {})
  job.script = job.script or "#!/bin/sh\n"
  local code = slurm_job_submit(job, { malleable = { total_nodes = 64, max_time = 60 },
    parts = { total_nodes = 8, max_time = 60 } }, 1000)
  local words = {}
  for index, name in ipairs(WRITTEN) do
    words[index] = tostring(job[name] or "")
  end
  return answer(code, words)
end

function ASK.change(text)
  local record = { admin_comment = "malleable{min=1}", user_id = 1000 }
  return answer(slurm_job_modify(describe(text, CHANGED), record, {}, 1000), {})
end

function ASK.policy(text)
  local load_text = loadstring or load -- luacheck: ignore
  local body, why = load_text(text)
  if not body then return "broken " .. hex(why) end
  local found = body()
  local faults = request.check_policy(found)
  if #faults > 0 then return "broken " .. hex(faults[1]) end
  return answer(slurm.SUCCESS, found.partitions)
end

for line in io.lines() do
  logged, said = {}, {}
  local kind, text = line:match("^(%l+) (%x*)$")
  local ok, found = pcall(ASK[kind], unhex(text))
  io.write(ok and found or "broken " .. hex(tostring(found)), "\n")
  io.flush()
end
