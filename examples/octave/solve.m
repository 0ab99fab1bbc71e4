% One task: the lowest frequency of a string whose stiffness grows along it.
% From inputs/NAME.m to results/NAME.csv, which is there as a whole or not at all.
function solve (input)
  run (input);
  [~, name] = fileparts (input);
  step = 1 / (nodes + 1);
  middle = ((1:nodes + 1)' - 0.5) * step;
  along = 1 + stiffness * middle;
  main = along(1:end - 1) + along(2:end);
  side = -along(2:end - 1);
  matrix = (diag (main) + diag (side, 1) + diag (side, -1)) / step^2;
  frequency = sqrt (min (eig (matrix)));
  [~, ~] = mkdir ("results");
  draft = sprintf ("results/.%s.%d", name, getpid ());
  file = fopen (draft, "w");
  fprintf (file, "%s,%d,%d,%.6f\n", name, nodes, stiffness, frequency);
  fclose (file);
  rename (draft, ["results/" name ".csv"]);
end
