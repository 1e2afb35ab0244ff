-- Does every step obey the rule (the position is the length read before the append)? One line for each run and distance.
SELECT run, verdict, off_by, count(*) AS steps, min(step) AS first, max(step) AS last
FROM rule
GROUP BY run, verdict, off_by
ORDER BY run, first;
