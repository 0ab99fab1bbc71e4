std = "min" -- what 5.1 to 5.4 have in common
max_line_length = 100

-- Slurm's table is known to the files that Slurm runs; the modules that they load are pure.
local entry_points = {
  read_globals = { "slurm" },
  globals = { "slurm_job_submit", "slurm_job_modify" },
}
files["**/malleable_submit.lua"] = entry_points
files["**/job_submit.lua"] = entry_points
files["**/controller.lua"] = { globals = { "slurm", "slurm_job_submit", "slurm_job_modify",
  "MALLEABLE_POLICY" } }
files["**/glue_test.lua"] = {
  globals = { "slurm", "slurm_job_submit", "slurm_job_modify", "MALLEABLE_POLICY",
    "MALLEABLE_WRAPPED", "MALLEABLE_GLUE" },
}
