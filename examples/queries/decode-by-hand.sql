-- A float32 decoded by hand, as the views do it: scores[0] of one head. `high` is its sign and exponent, `fraction` the rest.
WITH four AS (SELECT substr(scores, 1, 4) AS b FROM head_step WHERE run = 1 AND step = 3 AND layer = 0 AND head = 0),
     parts AS (SELECT hex(b) AS little_endian,
                 instr(bytes, substr(b, 4, 1)) * 2 + (instr(bytes, substr(b, 3, 1)) >> 7) AS high,
                 ((instr(bytes, substr(b, 3, 1)) & 127) << 16) + (instr(bytes, substr(b, 2, 1)) << 8)
                   + instr(bytes, substr(b, 1, 1)) AS fraction
               FROM four, byte_list)
SELECT little_endian, p.high, p.fraction, (p.fraction + f.hidden) * f.scale * f.again - f.minus AS score
FROM parts AS p JOIN float_scale AS f ON f.high = p.high;
