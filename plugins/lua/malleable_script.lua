--- Read in the batch script how it starts its training, and whether it submits itself again.
--
-- A user wrote the text, and a shell can hide anything. So this module refuses only a call that is
-- plain to see, and gives a note on a script that leaves a doubt. Pure; Lua 5.1 (Debian's Slurm) to
-- 5.4.

local M = {}

local LINE = 200 -- bytes of a line that may end a here-document
local WRITTEN = 100 -- bytes of a command in a message
local KEYWORDS = { ["if"] = true, ["then"] = true, ["else"] = true, ["elif"] = true,
  ["do"] = true, ["while"] = true, ["until"] = true, ["!"] = true, ["{"] = true, exec = true,
  time = true, command = true, nohup = true }
local ONLY_NAMED = { which = true, type = true, echo = true, ls = true }
local NO_TRAINING = { pip = true, venv = true, pytest = true }
-- Commands after the training that cannot be a training; any other command may be.
local HARMLESS = {}
for name in ("srun echo printf tee grep sed awk head tail sort cp mv rm ln ls cat mkdir touch tar "
  .. "gzip rsync date hostname sleep wait exit cd true set unset export module ml "
  .. "source . conda kill trap nvidia-smi env fi done } esac"):gmatch("%S+") do
  HARMLESS[name] = true
end
local NO_TORCHRUN = "note: the script does not call torchrun; if no program that it calls does, "
  .. "the job trains on 1 node, so start the training with torchrun"

--- The script without comments and here-documents, with continued lines joined.
local function read_lines(script)
  local kept, ending = {}, nil
  for line in (script:gsub("\\\r?\n", " ") .. "\n"):gmatch("([^\n]*)\n") do
    if ending then
      if #line < LINE and line:match("^%s*(.-)%s*$") == ending then ending = nil end
    elseif not line:find("^%s*#") then
      kept[#kept + 1] = line
      local is_shift = line:find("((", 1, true) -- `1 << N` in arithmetic
      ending = not is_shift and line:gsub("<<<", ""):match("<<%-?%s*[\"'\\]?([%a_][%w_]*)")
    end
  end
  return table.concat(kept, "\n")
end

--- The end of the quote, quoted character or comment that begins at `open`.
local function find_end(text, open, mark)
  if mark == "\\" then return open + 1 end
  if mark == "#" then
    local is_comment = text:find("^%s", open - 1)
    return is_comment and (text:find("\n", open, true) or #text + 1) - 1 or open
  end
  local close = text:find(mark, open + 1, true)
  while close and mark == '"' and text:sub(close - 1, close - 1) == "\\" do
    close = text:find(mark, close + 1, true)
  end
  return close or #text
end

--- The text with quoted text as plain words, so that no command begins inside quotes.
local function flatten_quotes(text)
  local parts, at = {}, 1
  while true do
    local open = text:find("[\"'\\#]", at)
    if not open then break end
    local mark = text:sub(open, open)
    local close = find_end(text, open, mark)
    parts[#parts + 1] = text:sub(at, open - 1)
    if mark == '"' or mark == "'" then
      parts[#parts + 1] = text:sub(open + 1, close - 1):gsub("[;&|()`\n]", " ")
    end
    at = close + 1
  end
  parts[#parts + 1] = text:sub(at)
  return table.concat(parts)
end

--- The words of a command, from its name on.
local function read_words(command)
  local words = {}
  for word in command:gmatch("%S+") do
    local is_ahead = #words == 0 and (KEYWORDS[word] or word:find("^[%a_][%w_]*="))
    if not is_ahead then words[#words + 1] = word end
  end
  return words
end

local function name_of(word)
  return word:match("^.*/(.*)$") or word
end

local function read_commands(text)
  local commands = {}
  for command in flatten_quotes(text):gmatch("[^;&|()`\n]+") do
    local words = read_words(command)
    if #words > 0 then commands[#commands + 1] = words end
  end
  return commands
end

--- The program that the words from `first` on give to Python, as torchrun takes it, else nil.
local function find_program(words, first)
  for index = first, #words do
    local word = words[index]
    if word == "-m" then
      local module = words[index + 1]
      return module and not NO_TRAINING[module] and "-m " .. module or nil
    end
    if word:find("%.py$") then return word end
    if word == "-c" or not word:find("^%-") then return nil end
  end
  return nil
end

--- The program of `srun ... python PROGRAM`, else nil.
local function find_srun_python(words)
  if name_of(words[1]) ~= "srun" then return nil end
  for index = 2, #words do
    if name_of(words[index]):find("^python[%d.]*$") then return find_program(words, index + 1) end
  end
  return nil
end

--- True if the program at `index` is a shell or Python that is given a launcher.
local function is_given_launcher(words, index, launchers)
  local name, option, program = name_of(words[index]), words[index + 1], words[index + 2]
  local is_shell = name:find("sh$") and option and option:find("^%-l?c$")
  local is_python = name:find("^python") and option == "-m"
  return program ~= nil and (is_shell or is_python) and launchers[name_of(program)] == true
end

--- True for `srun torchrun` without a number of tasks.
local function is_srun_torchrun(words, launchers)
  if name_of(words[1]) ~= "srun" then return false end
  for index = 2, #words do
    local word, before = words[index], words[index - 1]
    if word:find("^%-n") or word:find("^%-%-ntasks") then return false end
    local is_option = word:find("^%-") ~= nil
    if not is_option and launchers[name_of(word)] then return not ONLY_NAMED[before] end
    if is_given_launcher(words, index, launchers) then return true end
    local is_value = before:find("^%-") and not before:find("=", 1, true)
    if not is_option and not is_value then return false end -- srun starts another program
  end
  return false
end

--- True if the command may start any program: it is another script, or Python without srun.
local function is_opaque(words)
  if words[1] == "source" or words[1] == "." then return false end
  if name_of(words[1]):find("^python[%d.]*$") then return true end
  for _, word in ipairs(words) do
    if word:find("%.sh$") then return true end
  end
  return false
end

--- The last program that `srun python` starts; nil if a later command or another script may be
-- the training.
local function find_separate_copies(commands)
  local program
  for _, words in ipairs(commands) do
    local started = find_srun_python(words)
    if started then
      program = started
    elseif program and not HARMLESS[name_of(words[1])] then
      return nil
    elseif is_opaque(words) and not name_of(words[1]):find("^python") then
      return nil
    end
  end
  return program
end

local function calls_launcher(script, launchers)
  for line in script:gmatch("[^\n]+") do
    if not line:find("^%s*#") then
      for name in pairs(launchers) do
        if line:find(name, 1, true) then return true end
      end
    end
  end
  return false
end

local function check_copies(commands, request, tasks)
  local program = find_separate_copies(commands)
  if not program or request.launch then return { note = NO_TORCHRUN } end
  local each = tasks and string.format("%d", tasks) or "N"
  program = program:sub(1, WRITTEN):gsub("[^ -~]", "?")
  return { fault = string.format("srun python %s: each fragment would train a separate copy; write "
    .. "`torchrun --nproc-per-node=%s %s` instead, or a MAX of 1", program, each, program) }
end

local function check_agents(commands, tasks, launchers)
  if not tasks or tasks <= 1 then return {} end
  for _, words in ipairs(commands) do
    if is_srun_torchrun(words, launchers) then
      local times = tasks == 2 and "twice" or string.format("%d times", tasks)
      return { fault = "--ntasks-per-node: srun starts torchrun " .. times .. " on each node; "
        .. "write --ntasks-per-node=1, and torchrun --nproc-per-node=N for N processes" }
    end
  end
  return {}
end

--- The option of an srun that gives its number of nodes, and the number; nil without the option.
local function find_nodes_of_step(words)
  if name_of(words[1]) ~= "srun" then return nil end
  for index = 2, #words do
    local word, before = words[index], words[index - 1]
    local is_value = before:find("^%-") and not before:find("=", 1, true)
    if not word:find("^%-") and not is_value then return nil end -- the program of the step
    local number = word:match("^%-N(%d+)$") or word:match("^%-%-nodes=(%d+)$")
    if number then return word, tonumber(number) end
    if (before == "-N" or before == "--nodes") and word:find("^%d+$") then
      return before .. " " .. word, tonumber(word)
    end
  end
  return nil
end

--- A note if a step asks for more nodes than a fragment has: srun refuses that.
local function write_step_note(commands, unit)
  for _, words in ipairs(commands) do
    local option, nodes = find_nodes_of_step(words)
    if option and nodes > unit then
      return string.format("note: srun %s asks for more than the %d node%s of a fragment; drop it, "
        .. "or write --nodes=$SLURM_NNODES", option:sub(1, WRITTEN), unit, unit == 1 and "" or "s")
    end
  end
  return nil
end

--- The number that torchrun is given as --nproc-per-node, else nil.
local function find_workers(words, launchers)
  local is_launched = launchers[name_of(words[1])] ~= nil
  for index = 2, #words do
    local word = words[index]
    is_launched = is_launched or launchers[name_of(word)] ~= nil
    local name, value = word:match("^%-%-(nproc[-_]per[-_]node)=?(%d*)$")
    if is_launched and name then return tonumber(value) or tonumber(words[index + 1]) end
  end
  return nil
end

--- A fault if fragments would start more workers than they have GPUs. A single worker may use all.
local function check_workers(commands, request, launchers)
  if request.counted ~= "gpu" then return nil end
  local only = request.max == request.unit and request.unit
  for _, words in ipairs(commands) do
    local workers = find_workers(words, launchers)
    if workers and workers > 1 and workers ~= only then
      return string.format("torchrun --nproc-per-node=%d: fragments have different numbers of "
        .. "GPUs; write --nproc-per-node=gpu, or drop it", workers)
    end
  end
  return nil
end

--- The option of torchrun that is for a single node, as written, else nil.
local function find_single_node(words, launchers)
  local is_launched = false
  for index, word in ipairs(words) do
    if not is_launched then
      is_launched = launchers[name_of(word)] ~= nil
    elseif word == "-m" or word:find("%.py$") then
      return nil -- the rest is the program's
    elseif word == "--standalone" or word == "--nnodes=1" or word == "--nnodes=1:1" then
      return word
    elseif word == "--nnodes" then
      local number = words[index + 1]
      return (number == "1" or number == "1:1") and word .. " " .. number or nil
    end
  end
  return nil
end

--- A note if the script's line is for a single node, and the job may have several.
local function write_rank_note(commands, request, launchers)
  if request.max <= (request.counted and request.unit or 1) then return nil end
  for _, words in ipairs(commands) do
    local option = find_single_node(words, launchers)
    if option then
      return "note: torchrun " .. option .. ": the job trains on all its nodes all the same; take "
        .. "the rank from RANK, not LOCAL_RANK, in the training script, or submit with a MAX of 1"
    end
  end
  return nil
end

--- A fault if the script declares that all agents have the same number of workers.
local function check_identical(script, request)
  if not request.counted or not script:find("TORCH_ELASTIC_WORKER_IDENTICAL=1", 1, true) then
    return nil
  end
  return "TORCH_ELASTIC_WORKER_IDENTICAL=1: fragments have different numbers of workers; drop it"
end

--- The verdict on a training that torchrun starts. parts: {script, lines, commands}.
local function check_training(parts, request, tasks, launchers)
  local commands, nodes = parts.commands, request.counted and 1 or request.unit
  local fault = check_identical(parts.lines, request)
    or check_workers(commands, request, launchers)
  if fault then return { fault = fault } end
  if calls_launcher(parts.script, launchers) then
    local verdict = check_agents(commands, tasks, launchers)
    verdict.note = not verdict.fault and (write_step_note(commands, nodes)
      or write_rank_note(commands, request, launchers)) or nil
    return verdict
  end
  if request.max <= request.unit then return {} end
  return check_copies(commands, request, tasks)
end

--- The options of a line of #SBATCH, without quoted text and comment.
local function read_options(line)
  return line:gsub('"[^"]*"', ""):gsub("'[^']*'", ""):gsub("%s#.*$", "")
end

--- The word --signal of the #SBATCH lines, as written, else nil. sbatch reads these lines up to the
-- first command. It accepts the option's name cut short.
local function find_signal(script)
  for line in (script .. "\n"):gmatch("([^\n]*)\n") do
    if not line:find("^%s*#") and line:find("%S") then return nil end
    for word in read_options(line:match("^#SBATCH(.*)$") or ""):gmatch("%S+") do
      local name = word:match("^%-%-(sig%a*)")
      if name and name == ("signal"):sub(1, #name) then return word end
    end
  end
  return nil
end

--- Refuse a signal before the end of the lease: its trap would act once in each fragment.
local function check_signal(script)
  local option = find_signal(script)
  if not option then return nil end
  return option:sub(1, WRITTEN):gsub("[^ -~]", "?") .. ": Slurm would signal each fragment at the "
    .. "end of its first lease only; delete the line and its trap: a malleable job continues by "
    .. "itself, and notice() in your script takes the place of the signal"
end

--- The first call that submits or requeues a job, else nil. A trap may hold the call in its text.
local function find_resubmission(commands)
  for _, words in ipairs(commands) do
    local last = name_of(words[1]) == "trap" and #words or 1
    for index = 1, last do
      local name = name_of(words[index])
      if name == "sbatch" then return name end
      if name == "scontrol" and words[index + 1] == "requeue" then return "scontrol requeue" end
    end
  end
  return nil
end

--- A note if the script has a trap and submits or requeues a job: each fragment would do so.
local function write_trap_note(commands)
  local has_trap = false
  for _, words in ipairs(commands) do
    has_trap = has_trap or words[1] == "trap"
  end
  local call = has_trap and find_resubmission(commands)
  if not call then return nil end
  return "note: the script has a trap and calls " .. call .. ": each fragment would do so; delete "
    .. "both if they only continue the job: a malleable job continues by itself"
end

--- Return {fault, note, signal} of the script. `signal` is the fault of its #SBATCH lines; of the
-- other two fields at most a single field is there.
-- tasks: on each node, nil if the job does not say; launchers: the words for torch's launchers.
function M.check(script, request, tasks, launchers)
  local signal = check_signal(script or "")
  if not (script and script:find("^#![^\n]*sh")) then return { signal = signal } end
  local parts = { script = script, lines = read_lines(script) }
  parts.commands = read_commands(parts.lines)
  local is_training = launchers and request.engine == "torchrun"
  local verdict = is_training and check_training(parts, request, tasks, launchers) or {}
  if not verdict.fault then verdict.note = write_trap_note(parts.commands) or verdict.note end
  verdict.signal = signal
  return verdict
end

return M
