--- Read, write and check the text of a request, MIN-MAX and its keys.
--
-- malleable_request.lua checks MIN-MAX and the site's policy. The plugin reads and checks the same
-- text in request.c and sizes.c. Runs on Lua 5.1 (Debian's Slurm) to 5.4.

local M = {}

M.MAX_COUNT = 65535
local MAX_COUNT = M.MAX_COUNT
local MAX_LENGTH = 200 -- of a request, whose parts are all short; each fault is a message
local MAX_SIZES = 16 -- as many as doubling yields
local MAX_MIN_RUN_S = 43200
local DOUBLE, FINISH = "x2", "finish"

--- The value of unit=, as all other parts read it: 2, gpu, 2gpu.
function M.spell_unit(request)
  if not request.counted then return string.format("%d", request.unit) end
  return (request.unit > 1 and string.format("%d", request.unit) or "") .. request.counted
end

--- MIN, 2 MIN, 4 MIN and so on, up to MAX.
local function double(min, max)
  local sizes, size = {}, min
  while size >= 1 and size <= max do
    sizes[#sizes + 1], size = size, 2 * size
  end
  return sizes
end

--- The only sizes from `min` to `max` that the job may have; nil if it may have any.
local function list_sizes(min, max, request)
  if request.sizes == DOUBLE then return double(min, max) end
  if not request.sizes then return nil end
  local kept = {}
  for _, size in ipairs(request.sizes) do
    if size >= min and size <= max and size % request.unit == 0 then kept[#kept + 1] = size end
  end
  return kept
end

--- The largest size up to `number` that the job may have, else its smallest.
local function find_size(number, min, max, request)
  local sizes = list_sizes(min, max, request)
  if not sizes then
    local unit = request.unit
    return math.max(math.floor(math.min(number, max) / unit) * unit, min, unit)
  end
  local largest = sizes[1]
  for _, size in ipairs(sizes) do
    if size <= number then largest = size end
  end
  return largest
end

--- The other keys of the job, as far as they fit these sizes.
local function spell_wishes(min, max, request)
  local text = ""
  local core, prefer = request.core, request.prefer
  if core and core <= max and core % request.unit == 0 then
    text = string.format(",core=%d", core)
    if request.core_end == FINISH then text = text .. ",core_end=" .. FINISH end
  end
  if request.sizes == DOUBLE then text = text .. ",sizes=" .. DOUBLE end
  local sizes = request.sizes and request.sizes ~= DOUBLE and list_sizes(min, max, request)
  if sizes and sizes[1] then text = text .. ",sizes=" .. table.concat(sizes, ",") end
  if prefer and find_size(prefer, min, max, request) == prefer then
    text = text .. string.format(",prefer=%d", prefer)
  end
  if request.min_run then text = text .. string.format(",min_run=%d", request.min_run) end
  return text
end

--- The flag as a user would write it, without defaults.
function M.spell(min, max, request)
  local sizes = request.sizes ~= DOUBLE and list_sizes(min, max, request)
  if sizes and sizes[1] then min, max = sizes[1], sizes[#sizes] end
  local text = string.format("--malleable=%d-%d", min, max)
  if request.unit > 1 or request.counted then text = text .. ",unit=" .. M.spell_unit(request) end
  if request.engine ~= "torchrun" then text = text .. ",engine=" .. request.engine end
  if request.launch then text = text .. ",launch=" .. request.launch end
  return text .. spell_wishes(min, max, request)
end

--- The request as the plugin writes it, with all defaults.
function M.write(request)
  local text = { string.format("%d-%d,unit=%s,engine=%s", request.min, request.max,
    M.spell_unit(request), request.engine) }
  local function add(key, value)
    if value then text[#text + 1] = key .. "=" .. value end
  end
  local function add_number(key, number)
    add(key, number and string.format("%d", number))
  end
  local sizes = request.sizes
  add("launch", request.launch)
  add_number("core", request.core)
  add("core_end", request.core_end == FINISH and FINISH)
  add("sizes", sizes and (sizes == DOUBLE and sizes or table.concat(sizes, ",")))
  add_number("prefer", request.prefer)
  add_number("min_run", request.min_run)
  return table.concat(text, ",")
end

local function parse_count(text)
  if text and text:match("^%d%d?%d?%d?%d?$") then return tonumber(text) end
  return nil
end

--- 2, gpu, 2gpu, task or 2task: the number, and the thing counted if it is not nodes.
local function parse_unit(text)
  local number, counted = text:match("^(%d*)(%l*)$")
  if counted == "" then return parse_count(number) end
  if counted ~= "gpu" and counted ~= "task" then return nil end
  return number == "" and 1 or parse_count(number), counted
end

local function parse_number(text)
  local number = parse_count(text)
  return number and number >= 1 and number or nil
end

--- x2, or sizes from small to large, 2,4,8.
local function parse_sizes(text)
  if text == DOUBLE then return text end
  local sizes = {}
  for word in (text .. ","):gmatch("([^,]*),") do
    local size = parse_number(word)
    if not size or size <= (sizes[#sizes] or 0) then return nil end
    sizes[#sizes + 1] = size
  end
  return #sizes <= MAX_SIZES and sizes or nil
end

local SECONDS = { [""] = 1, s = 1, m = 60, h = 3600 }

--- 600, 600s, 10m or 1h, in seconds.
local function parse_seconds(text)
  local digits, unit = text:match("^(%d+)([smh]?)$")
  local number = parse_number(digits)
  local seconds = number and number * SECONDS[unit]
  return seconds and seconds <= MAX_MIN_RUN_S and seconds or nil
end

local function is_name(text)
  return #text <= 32 and text:match("^[a-z][a-z0-9_]*$") or nil
end

--- Each key: the function that reads its value, and an example.
local KEYS = {
  unit = { parse_unit, string.format("unit=N (1 to %d) or unit=gpu", MAX_COUNT) },
  engine = { is_name, "engine=NAME" },
  launch = { function(text) return text == "srun" and text or nil end, "launch=srun" },
  core = { parse_number, "core=N, the size that is never taken" },
  core_end = { function(text) return (text == "stay" or text == FINISH) and text or nil end,
    "core_end=stay or core_end=finish" },
  sizes = { parse_sizes, string.format("sizes=x2, or up to %d sizes from small to large, each "
    .. "once, as in sizes=2,4,8", MAX_SIZES) },
  prefer = { parse_number, "prefer=N, a size that the job may have" },
  min_run = { parse_seconds, "min_run=10m (1s to 12h)" },
}

local function parse_option(request, seen, part)
  local key, value = part:match("^([a-z_]+)=(.*)$")
  if not key or not KEYS[key] then
    return string.format("--malleable: cannot read '%s'; after MIN-MAX write unit=N, "
      .. "unit=gpu, engine=NAME, launch=srun, core=N, core_end=finish, sizes=2,4,8, prefer=N "
      .. "or min_run=10m", part:sub(1, 40))
  end
  if seen[key] then return "--malleable: " .. key .. " is given twice; write it once" end
  seen[key] = true
  local parsed, counted = KEYS[key][1](value)
  request[key], request.counted = parsed, counted or request.counted
  if request[key] == nil then
    return string.format("--malleable: '%s' is not a usable %s; write %s", value:sub(1, 40), key,
      KEYS[key][2])
  end
  return nil
end

--- The parts after MIN-MAX. Numbers after `sizes=` belong to it.
local function split_options(text)
  local parts = {}
  for part in text:gmatch(",([^,]*)") do
    local last = parts[#parts] or ""
    if last:find("^sizes=") and part:find("^%d+$") then
      parts[#parts] = last .. "," .. part
    else
      parts[#parts + 1] = part
    end
  end
  return parts
end

--- Write the sizes that the job may have to `allowed`, nil for any. Doubling may end below MAX.
local function settle_sizes(request)
  if request.unit < 1 then return end -- a fault that check_range reports
  request.allowed = list_sizes(request.min, request.max, request)
  local largest = request.sizes == DOUBLE and request.allowed[#request.allowed]
  if not largest or largest == request.max then return end
  request.notes[1] = string.format("note: MAX %d is not among the sizes %s, so the job grows to %d "
    .. "at most", request.max, table.concat(request.allowed, ", "), largest)
  request.max = largest
end

--- Give a valid request a smaller MAX, and keep only its sizes up to that MAX.
function M.cut(request, max)
  local allowed = list_sizes(request.min, max, request)
  if request.sizes and request.sizes ~= DOUBLE then request.sizes = allowed end
  request.allowed, request.max = allowed, allowed and allowed[#allowed] or max
  if request.prefer then
    request.prefer = find_size(request.prefer, request.min, request.max, request)
  end
end

local function refuse_long(text)
  return { string.format("--malleable: '%s...' is longer than %d characters; write for example "
    .. "--malleable=2-16", text:sub(1, 40), MAX_LENGTH) }
end

--- Split `2-16,unit=1,engine=torchrun[,launch=srun][,core=2]` and so on.
-- Returns the request {min, max, unit, counted, engine, launch, core, core_end, sizes, prefer,
-- min_run, allowed, notes} or nil, and a list of faults. `counted` is nil for nodes, else gpu or
-- task, `sizes` x2 or a list, `min_run` in seconds.
function M.parse(text)
  if #text > MAX_LENGTH then return nil, refuse_long(text) end
  local first, rest = text:match("^([^,]*)(.*)$")
  local low, high = first:match("^(%d+)%-(%d+)$")
  local request = { min = parse_count(low), max = parse_count(high), unit = 1,
    engine = "torchrun", notes = {} }
  local faults, seen = {}, {}
  if not (request.min and request.max) then
    faults[1] = string.format("--malleable: '%s' is not MIN-MAX, two node counts up to %d; "
      .. "write for example --malleable=2-16", first:sub(1, 40), MAX_COUNT)
  end
  for _, part in ipairs(split_options(rest)) do
    faults[#faults + 1] = parse_option(request, seen, part)
  end
  if #faults > 0 then return nil, faults end
  if #M.write(request) > MAX_LENGTH then return nil, refuse_long(text) end
  settle_sizes(request)
  return request, faults
end

local function check_sizes(request)
  local sizes, unit = request.sizes, request.unit
  if not sizes then return nil end
  if sizes == DOUBLE then
    return request.min == 0 and "--malleable: sizes=x2 doubles MIN, which is 0; write a MIN of 1 "
      .. "or more" or nil
  end
  for _, size in ipairs(sizes) do
    if size % unit ~= 0 then
      return string.format("--malleable: size %d is no multiple of unit %d; write %s", size, unit,
        M.spell(request.min, request.max, request))
    end
  end
  if sizes[1] == request.min and sizes[#sizes] == request.max then return nil end
  return string.format("--malleable: sizes=%s must begin with MIN %d and end with MAX %d; write %s",
    table.concat(sizes, ","), request.min, request.max, M.spell(sizes[1], sizes[#sizes], request))
end

--- The values that a core may have, in words.
local function describe_cores(request)
  if request.allowed then return "one of the sizes" end
  local most = string.format("at most MAX %d", request.max)
  if request.unit == 1 then return most end
  return string.format("a multiple of unit %d and %s", request.unit, most)
end

local function check_core(request)
  local core, unit = request.core, request.unit
  if not core then
    return request.core_end and string.format("--malleable: core_end=%s needs a core; write core=N "
      .. "with it, or leave it out", request.core_end)
  end
  local size = find_size(core, request.allowed and request.min or unit, request.max, request)
  if size == core then return nil end
  return string.format("--malleable: core=%d must be %s; write core=%d", core,
    describe_cores(request), size)
end

local function check_prefer(request)
  local prefer = request.prefer
  local size = prefer and find_size(prefer, request.min, request.max, request)
  if size == prefer then return nil end
  return string.format("--malleable: prefer=%d is not a size that the job may have; write "
    .. "prefer=%d", prefer, size)
end

--- Return a fault of a request whose MIN-MAX is valid, else nil.
function M.check(request)
  return check_sizes(request) or check_core(request) or check_prefer(request)
end

return M
