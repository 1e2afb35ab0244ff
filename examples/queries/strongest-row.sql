-- Which cache row got most weight, in each head of each layer, in the last step of run 1?
-- For another step write its number in place of the SELECT in brackets.
SELECT layer, head, max_row AS row, round(max_weight, 3) AS weight
FROM head_summary
WHERE run = 1 AND step = (SELECT max(step) FROM step WHERE run = 1)
ORDER BY layer, head;
