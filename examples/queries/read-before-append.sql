-- Is the length really read before the append? `seq` is the order in which the phases ran, so every step must have its
-- read_length before its first append, and the length it read must be the position it used.
SELECT s.run, s.step, r.seq AS read_at, min(a.seq) AS append_at, r.cache_length AS length_read, s.position,
       CASE WHEN r.seq < min(a.seq) THEN 'read, then append' ELSE 'append, then read' END AS verdict
FROM step AS s
JOIN event AS r ON r.run = s.run AND r.step = s.step AND r.phase = 'read_length'
JOIN event AS a ON a.run = s.run AND a.step = s.step AND a.phase = 'append'
GROUP BY s.run, s.step, r.seq
ORDER BY s.run, s.step;
