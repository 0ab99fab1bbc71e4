--- The name that malleable_checks.lua had: a site's copy of an older malleable_submit.lua reads it.
local own_dir = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
return dofile(own_dir .. "malleable_checks.lua")
