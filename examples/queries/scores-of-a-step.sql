-- How many scores does step 9 have? One per cached row, itself included: the length read, plus one. The weights sum to 1
-- over exactly those, without any mask.
SELECT s.step, s.cache_length_before AS length_read, length(h.scores) / 4 AS scores,
       round(sum(e.weight_sum) / count(*), 6) AS weight_sum
FROM step AS s
JOIN head_step AS h ON h.run = s.run AND h.step = s.step
JOIN head_summary AS e ON e.run = h.run AND e.step = h.step AND e.layer = h.layer AND e.head = h.head
WHERE s.run = 1 AND s.step = 9
GROUP BY s.step, s.cache_length_before, length(h.scores);
