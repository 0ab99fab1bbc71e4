-- Reads requests from standard input, a line of hexadecimal bytes each, and says what they are.
--
-- usage: lua request_lines.lua MODULES; one line of output each: `request MIN MAX UNIT ENGINE
-- COUNTED FRAGMENTS` if it is accepted, `faults N` if it is refused, `neither` if it is not clear.
package.path = arg[1] .. "/?.lua"
local request = require("malleable_request")

local policy = {
  partitions = { "malleable" }, unfit = {}, operators = { [0] = true },
  engines = { torchrun = "gang+rounds+torchrun", torchft = "torchrun", pool = "pool" },
  max_fragments = 64, max_workers = 500, max_nodes = 1024, max_array_size = 1001,
  lease_s = 600, hole_s = 120,
}

for line in io.lines() do
  local text = line:gsub("..", function(byte) return string.char(tonumber(byte, 16)) end)
  local found, faults = request.read(text, policy)
  if #faults > 0 then
    for _, fault in ipairs(faults) do assert(type(fault) == "string" and fault ~= "") end
    print("faults " .. #faults)
  else
    local sizes = found and string.format("%d %d %d %s %s %d", found.min, found.max, found.unit,
      found.engine, found.counted or "node", found.fragments)
    print(sizes and "request " .. sizes or "neither")
  end
end
