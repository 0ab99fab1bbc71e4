--- The text of a request, MIN-MAX[,unit=N][,engine=NAME][,launch=srun]: read and written.
--
-- The policy and the range are checked by malleable_request.lua. Runs on Lua 5.1 (Debian's Slurm)
-- to 5.4.

local M = {}

M.MAX_COUNT = 65535
local MAX_COUNT = M.MAX_COUNT
local MAX_LENGTH = 200 -- of a request, all of whose parts are short; each fault is a message

--- The value of unit=, as all other parts read it: 2, gpu, 2gpu.
function M.spell_unit(request)
  if not request.counted then return string.format("%d", request.unit) end
  return (request.unit > 1 and string.format("%d", request.unit) or "") .. request.counted
end

--- The flag as a user would write it, without defaults.
function M.spell(min, max, request)
  local text = string.format("--malleable=%d-%d", min, max)
  if request.unit > 1 or request.counted then text = text .. ",unit=" .. M.spell_unit(request) end
  if request.engine ~= "torchrun" then text = text .. ",engine=" .. request.engine end
  if request.launch then text = text .. ",launch=" .. request.launch end
  return text
end

--- The request as the plugin writes it, without anything left out.
function M.write(request)
  return string.format("%d-%d,unit=%s,engine=%s%s", request.min, request.max, M.spell_unit(request),
    request.engine, request.launch and ",launch=" .. request.launch or "")
end

local function parse_count(text)
  if text and text:match("^%d%d?%d?%d?%d?$") then return tonumber(text) end
  return nil
end

--- 2, gpu, 2gpu, task or 2task: the number, and what it counts if that is not nodes.
local function parse_unit(text)
  local number, counted = text:match("^(%d*)(%l*)$")
  if counted == "" then return parse_count(number) end
  if counted ~= "gpu" and counted ~= "task" then return nil end
  return number == "" and 1 or parse_count(number), counted
end

local PARSERS = {
  unit = parse_unit,
  engine = function(text)
    return #text <= 32 and text:match("^[a-z][a-z0-9_]*$") or nil
  end,
  launch = function(text)
    return text == "srun" and text or nil
  end,
}

local function parse_option(request, seen, part)
  local key, value = part:match("^([a-z]+)=(.*)$")
  if not key or not PARSERS[key] then
    return string.format("--malleable: '%s' is not known; after MIN-MAX write unit=N, "
      .. "unit=gpu, engine=NAME or launch=srun", part:sub(1, 40))
  end
  if seen[key] then return "--malleable: " .. key .. " is given twice; write it once" end
  seen[key] = true
  local parsed, counted = PARSERS[key](value)
  request[key], request.counted = parsed, counted or request.counted
  if request[key] == nil then
    return string.format("--malleable: '%s' is not a usable %s; write unit=N (1 to %d), unit=gpu, "
      .. "engine=NAME or launch=srun", value:sub(1, 40), key, MAX_COUNT)
  end
  return nil
end

--- Split `2-16,unit=1,engine=torchrun[,launch=srun]`.
-- Returns the request {min, max, unit, counted, engine, launch} or nil, and a list of faults.
-- `counted` is nil for nodes, else gpu or task.
function M.parse(text)
  if #text > MAX_LENGTH then
    return nil, { string.format("--malleable: '%s...' is longer than any request; write for "
      .. "example --malleable=2-16", text:sub(1, 40)) }
  end
  local first, rest = text:match("^([^,]*)(.*)$")
  local low, high = first:match("^(%d+)%-(%d+)$")
  local request = { min = parse_count(low), max = parse_count(high), unit = 1, engine = "torchrun" }
  local faults, seen = {}, {}
  if not (request.min and request.max) then
    faults[1] = string.format("--malleable: '%s' is not MIN-MAX, two node counts up to %d; "
      .. "write for example --malleable=2-16", first:sub(1, 40), MAX_COUNT)
  end
  for part in rest:gmatch(",([^,]*)") do
    faults[#faults + 1] = parse_option(request, seen, part)
  end
  if #faults > 0 then return nil, faults end
  return request, faults
end

return M
