--- Check and rewrite malleable jobs in Slurm's two functions. A site's job_submit.lua loads this
-- file by a line at its end, before its final `return slurm.SUCCESS`:
--
--   pcall(dofile, "/usr/share/slurm-malleable/lua/malleable_submit.lua")
--
-- The modules beside this file do the work. Never rename or move this file: the files of sites name
-- it.
--
-- The site's slurm_job_submit and slurm_job_modify run first. Their refusal stands, and the values
-- that they write are kept unless a malleable job needs another value. `pcall` keeps the site's
-- file working after our package is removed.
--
-- The modules load from this file's directory. The policy loads from MALLEABLE_POLICY (a global
-- path set before that line), else from malleable_policy.lua beside the file with that line. Slurm
-- reads all of them again when job_submit.lua changes: after a new policy, `touch` that file.
--
-- An error in this file refuses malleable jobs and lets all other jobs pass.

if _G.MALLEABLE_WRAPPED then return end -- loaded twice: already wrapped

local KEY = "MALLEABLE="
local VARIABLE = "SBATCH_MALLEABLE" -- the same in the job's own environment
local WHY_MALLEABLE = "--malleable: the environment variable SBATCH_MALLEABLE is set; for an "
  .. "ordinary job, unset it"
local BY_VARIABLE = "note: this job is malleable because the environment has SBATCH_MALLEABLE=%s"
local LONGEST = 1000 -- bytes of a line for the user
local LONGEST_TEXT = 65536 -- bytes of a user's text that this file reads, while slurmctld waits
local JOB_FIELDS = {
  "partition", "array_inx", "het_job_offset", "cron_job", "requeue", "dependency", "begin_time",
  "req_nodes", "contiguous", "min_nodes", "max_nodes", "num_tasks", "ntasks_per_node",
  "min_cpus", "cpus_per_task", "tres_per_job", "time_limit", "time_min", "mail_type", "priority",
  "std_out", "reservation", "req_switch", "shared", "reboot", "comment", "licenses", "bitflags",
  "qos", "account", "name", "tres_per_node", "tres_per_task", "tres_per_socket", "cpus_per_tres",
  "mem_per_tres", "ntasks_per_tres", "min_mem_per_node", "min_mem_per_cpu",
  "pn_min_cpus", "threads_per_core", "sockets_per_node", "cores_per_socket", "core_spec",
}

local function read_path(info)
  return info and info.source:match("^@(.*)$")
end

local function cut_directory(path)
  return path:match("^(.*/)") or "./"
end

local own_path = read_path(debug.getinfo(1, "S")) or ""
local own_dir = cut_directory(own_path)

--- Path of the policy: set by the site, or beside the file that loads this file.
local function find_policy()
  if type(_G.MALLEABLE_POLICY) == "string" then return _G.MALLEABLE_POLICY end
  for level = 2, 10 do -- our file, dofile, pcall, the site's file
    local info = debug.getinfo(level, "S")
    if not info then break end
    local path = read_path(info)
    if path and path ~= own_path then return cut_directory(path) .. "malleable_policy.lua" end
  end
  return "/etc/slurm/malleable_policy.lua"
end

local policy_path = find_policy()

local function load_modules()
  return {
    request = dofile(own_dir .. "malleable_request.lua"),
    shape = dofile(own_dir .. "malleable_shape.lua"),
    slot = dofile(own_dir .. "malleable_slot.lua"),
    script = dofile(own_dir .. "malleable_script.lua"),
    options = dofile(own_dir .. "malleable_options.lua"),
    place = dofile(own_dir .. "malleable_place.lua"),
    checks = dofile(own_dir .. "malleable_checks.lua"),
    modify = dofile(own_dir .. "malleable_modify.lua"),
  }
end

--- Return the checked policy, or nil and its faults.
local function load_policy(request)
  local ok, policy = pcall(dofile, policy_path)
  if not ok then return nil, tostring(policy) end
  local faults = request.check_policy(policy)
  if #faults > 0 then return nil, policy_path .. ": " .. table.concat(faults, "; ") end
  return policy
end

local loaded, modules = pcall(load_modules)
local policy, broken
if loaded then
  policy, broken = load_policy(modules.request)
else
  modules, broken = nil, tostring(modules)
end
if broken then slurm.log_error("malleable: %s", broken) end

--- Read the policy again if it is missing. Slurm compares whole seconds, so it misses a `touch` in
-- the second in which it read job_submit.lua.
local function find_missing_policy()
  if policy or not loaded then return end
  policy, broken = load_policy(modules.request)
end

--- SBATCH_MALLEABLE in a job's environment: from a submit host without the plugin, or REST.
local function read_variable(job_desc)
  local value = job_desc.environment and job_desc.environment[VARIABLE]
  return value ~= "" and value or nil
end

--- The value of our option in this submission; nil for all other jobs.
local function find_request(job_desc)
  local env = job_desc.spank_job_env -- from index 0; nil if no SPANK plugin wrote to it
  for _, entry in pairs(env or {}) do
    if entry:sub(1, #KEY) == KEY then return entry:sub(#KEY + 1) end
  end
  return read_variable(job_desc)
end

local function read_fields(job_desc, names)
  local fields = {}
  for _, name in ipairs(names) do
    fields[name] = job_desc[name]
  end
  return fields
end

--- A line for each text that is too long to read.
local function find_long(fields)
  local lines = {}
  for name, value in pairs(fields) do
    if type(value) == "string" and #value > LONGEST_TEXT then
      lines[#lines + 1] = string.format("malleable: %s is longer than %d bytes; shorten it", name,
        LONGEST_TEXT)
    end
  end
  return lines
end

--- Show lines to the user. They may name a path of any length.
local function say(lines)
  for _, line in ipairs(lines) do
    slurm.log_user("%s", line:sub(1, LONGEST))
  end
end

--- Check a request and the job around it. Returns the decision of malleable_checks.lua.
local function decide(text, job, site)
  local function count_nodes(asked) return modules.place.count_nodes(asked, job, site, policy) end
  local request, faults = modules.request.read(text, policy, count_nodes)
  local asked = { request = request, faults = faults, options = modules.options.check(job) }
  if #faults == 0 then
    local most, owner = modules.place.find_submit_limit(request, job, site, policy)
    faults[1], asked.note = modules.request.cut(request, most, owner)
  end
  if #faults == 0 then
    asked.shape = request.counted and modules.slot.find(job, request, policy.gres or "gres:")
      or modules.shape.find(job, request)
    asked.gpus = not request.counted
      and modules.slot.count_gpus(job, request.unit, asked.shape.each) or nil
    asked.script = modules.script.check(job.script, request, asked.shape.each, policy.launchers)
  end
  function asked.accepts(other) return #decide(other, job, site).faults == 0 end
  return modules.checks.submit(asked, job, site, policy)
end

local function submit(text, job, job_desc, parts)
  find_missing_policy()
  if not policy then
    say({ "--malleable: malleable jobs are off here, as job_submit cannot read the policy; submit "
      .. "without --malleable, or tell your administrator: " .. broken })
    return slurm.ERROR
  end
  local site = { user = job_desc.user_id, partition = job_desc.partition,
    admin_comment = job_desc.admin_comment, exc_nodes = job_desc.exc_nodes, qos = job_desc.qos,
    default_qos = job_desc.default_qos, parts = parts, expedite = slurm.EXPEDITED_REQUEUE }
  for _, fields in ipairs({ job, site }) do
    local lines = find_long(fields)
    say(lines)
    if #lines > 0 then return slurm.ERROR end
  end
  local decision = decide(text, job, site)
  say(decision.faults)
  if #decision.faults > 0 then
    if read_variable(job_desc) then say({ WHY_MALLEABLE }) end
    return slurm.ERROR
  end
  for name, value in pairs(decision.set) do
    job_desc[name] = value
  end
  for name, value in pairs(decision.environment) do
    job_desc.environment[name] = value
  end
  say(decision.notes)
  local value = read_variable(job_desc)
  if value and text:sub(1, #value) == value then say({ string.format(BY_VARIABLE, value) }) end
  return slurm.SUCCESS
end

-- An update of an array calls for each element, with the text that was written for the last one.
local written = { comment = {}, admin_comment = {} } -- each since the command began
local COMMAND_S = 2

--- Return what a command sets as this text, and what is written for its elements so far. Without an
-- element twice: that is another command.
local function find_text(field, job_desc, job_rec, uid)
  local text, so_far = job_desc[field], written[field]
  local key = tostring(job_rec.array_job_id) .. ":" .. tostring(uid)
  local is_same = so_far.key == key and not so_far.seen[job_rec.array_task_id]
    and os.difftime(os.time(), so_far.at) <= COMMAND_S
  if is_same and text == so_far.now then return so_far.text, so_far end
  return text, { key = key, seen = {} }
end

--- Keep our part of a text that somebody replaces by another.
local function keep(field, kept_of, job_desc, job_rec, uid)
  if not job_desc[field] then return end
  local text, so_far = find_text(field, job_desc, job_rec, uid)
  local now = kept_of(job_rec[field] or "", text) or text
  if now ~= job_desc[field] then job_desc[field] = now end
  so_far.now, so_far.text, so_far.at = now, text, os.time()
  so_far.seen[job_rec.array_task_id or 0] = true
  written[field] = so_far
end

local function keep_both(job_desc, job_rec, uid)
  keep("admin_comment", modules.modify.keep_mark, job_desc, job_rec, uid)
  keep("comment", modules.modify.keep_words, job_desc, job_rec, uid)
end

local function keep_nothing() end

--- An element without a mark must not get the text of the last one.
local function clear(job_desc, job_rec, uid)
  for field in pairs(written) do
    keep(field, keep_nothing, job_desc, job_rec, uid)
  end
end

local function modify(job_desc, job_rec, uid)
  find_missing_policy()
  if modules.modify.is_operator(uid, job_rec.user_id, policy) then
    keep_both(job_desc, job_rec, uid)
    return slurm.SUCCESS
  end
  local change = read_fields(job_desc, modules.modify.FIELDS)
  local code, lines = modules.modify.ACCESS_DENIED, find_long(change)
  if #lines == 0 then code, lines = modules.modify.judge(change, policy) end
  if not code then
    keep_both(job_desc, job_rec, uid) -- Slurm lets its Administrators write AdminComment
    return slurm.SUCCESS
  end
  say(lines) -- 22.05 writes this to slurmctld's log only, and the user sees the error number
  return code
end

--- Run a function of ours. An error in it refuses the malleable job that triggered it.
local function guard(event, body, ...)
  local ok, code = pcall(body, ...)
  if ok then return code end
  slurm.log_error("malleable: %s: %s", event, tostring(code))
  pcall(slurm.log_user, "%s", "malleable: job_submit failed, and so refuses this; show this line "
    .. "to your administrator: " .. tostring(code))
  return slurm.ERROR
end

--- True for sbatch. salloc and srun inherit the variable inside a malleable job, and this file must
-- not touch them. They have no std_in. It is tested first, because reading `script` copies it all.
local function is_batch(job_desc)
  return (job_desc.std_in or job_desc.script) ~= nil
end

--- Return the text of the request and the fields as the user set them; nil for other jobs. A script
-- above LONGEST_TEXT is accepted, but not read.
local function inspect(job_desc)
  local text = find_request(job_desc)
  if not text or not is_batch(job_desc) then return nil end
  local job = read_fields(job_desc, JOB_FIELDS)
  local script = job_desc.script
  job.script = script and #script <= LONGEST_TEXT and script or nil
  return text, job
end

local function has_mark(job_rec)
  return modules and modules.modify.is_marked(job_rec.admin_comment)
end

local site_submit, site_modify = slurm_job_submit, slurm_job_modify

function slurm_job_submit(job_desc, parts, uid)
  local ok, text, job = pcall(inspect, job_desc)
  local code = slurm.SUCCESS
  if site_submit then code = site_submit(job_desc, parts, uid) end
  if not (ok and text) or (code or slurm.SUCCESS) ~= slurm.SUCCESS then return code end
  return guard("submission", submit, text, job, job_desc, parts)
end

function slurm_job_modify(job_desc, job_rec, parts, uid)
  local ok, marked = pcall(has_mark, job_rec)
  local code = slurm.SUCCESS
  if site_modify then code = site_modify(job_desc, job_rec, parts, uid) end
  if ok and not marked then pcall(clear, job_desc, job_rec, uid) end
  if not (ok and marked) or (code or slurm.SUCCESS) ~= slurm.SUCCESS then return code end
  return guard("change", modify, job_desc, job_rec, uid)
end

_G.MALLEABLE_WRAPPED = true
